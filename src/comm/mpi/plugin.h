// The table between Lathe and an MPI library: plain C, so that a plugin built by any compiler fits. plugin.c, compiled
// with the headers of one family of MPI libraries, fills it; mpi_library.h opens it.
//
// Functions return 0 or a code of the library's, whose text is error_text(). None but init, join and finalize waits for
// other ranks, and none allocates in the plugin.
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// Another number: another table. Plugins of other numbers are refused.
#define LATHE_MPI_VERSION 1

typedef union LatheMpiHandle {  // A communicator or a request of the library: a pointer in some, a number in others.
  void* pointer;
  long long number;
} LatheMpiHandle;

typedef struct LatheMpi {
  int version;       // LATHE_MPI_VERSION
  const char* name;  // "ompi", "mpich", "abi"

  void (*library)(char* text, size_t size);               // name and version of the library, at any time
  void (*error_text)(int code, char* text, size_t size);  // of a code that a function returned
  int (*is_truncated)(int code);                          // the message was longer than the receive's buffer

  int (*init)(int* threads);      // starts MPI if it is not; threads: 1 where any thread may call at any time
  int (*finalize)(void);          // if init() started it
  int (*end_all)(int exit_code);  // MPI_Abort: ends the processes of all ranks

  // All ranks call it. A communicator of the group's own: its messages meet no others. Errors are returned.
  int (*join)(LatheMpiHandle* group, int* rank, int* size, int* last_tag);
  int (*leave)(LatheMpiHandle* group);

  int (*send)(LatheMpiHandle group, const void* bytes, size_t count, int to, int tag, LatheMpiHandle* request);
  int (*receive)(LatheMpiHandle group, void* bytes, size_t count, int from, int tag, LatheMpiHandle* request);
  int (*barrier)(LatheMpiHandle group, LatheMpiHandle* request);
  // Whether it is done; the request is gone then, and with an error. count: bytes that came, of a receive.
  int (*test)(LatheMpiHandle* request, int* done, size_t* count);
  int (*cancel)(LatheMpiHandle* request);  // a receive that nothing came for; it is done soon, see test()
  // Whether a message is there to be received that nobody asked for yet; the first, if there are several. Ranks and
  // tags are what to look for, -1 for any, and then what it has.
  int (*probe)(LatheMpiHandle group, int* from, int* tag, int* found, size_t* count);

  // The library's own sum, in place and blocking: what bench/all_reduce compares with.
  int (*all_reduce)(LatheMpiHandle group, float* data, int count);
} LatheMpi;

// What a plugin exports.
const LatheMpi* lathe_mpi_plugin(void);

#ifdef __cplusplus
}
#endif
