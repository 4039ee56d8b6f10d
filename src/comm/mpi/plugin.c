// One source for every family of MPI libraries (plugin.h): the headers that it is compiled with make the difference.
// It is not linked with a library: the one that the process has opened is taken.
//
// LATHE_MPI_HEADER: <mpi.h>, or <mpi_abi.h> for the standard ABI of MPI 5. LATHE_MPI_NAME: the name of the family.
#include "comm/mpi/plugin.h"

#include <limits.h>
#include <string.h>

#include LATHE_MPI_HEADER

_Static_assert(sizeof(MPI_Comm) <= sizeof(LatheMpiHandle) && sizeof(MPI_Request) <= sizeof(LatheMpiHandle), "handles");

static MPI_Comm comm_of(LatheMpiHandle h) {
  MPI_Comm c;
  memcpy(&c, &h, sizeof c);
  return c;
}

static MPI_Request request_of(const LatheMpiHandle* h) {
  MPI_Request r;
  memcpy(&r, h, sizeof r);
  return r;
}

static void keep(LatheMpiHandle* h, const void* handle, size_t size) {
  memset(h, 0, sizeof *h);
  memcpy(h, handle, size);
}

static void copy_text(char* to, size_t size, const char* from) {
  if (size == 0) return;
  const size_t length = strlen(from), n = length < size ? length : size - 1;
  memcpy(to, from, n);
  to[n] = 0;
}

static void library(char* text, size_t size) {
  char full[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(full, &length);
  copy_text(text, size, full);
}

static void error_text(int code, char* text, size_t size) {
  char full[MPI_MAX_ERROR_STRING] = "unknown error";
  int length = 0;
  MPI_Error_string(code, full, &length);
  copy_text(text, size, full);
}

static int is_truncated(int code) {
  int class_of = MPI_SUCCESS;
  MPI_Error_class(code, &class_of);
  return class_of == MPI_ERR_TRUNCATE;
}

static int started_here = 0;  // not by the program that Lathe is a library of

static int init(int* threads) {
  int done = 0, provided = MPI_THREAD_SINGLE;
  int code = MPI_Initialized(&done);
  started_here = !done;
  if (!code) code = done ? MPI_Query_thread(&provided) : MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
  *threads = provided == MPI_THREAD_MULTIPLE;
  return code ? code : MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

static int finalize(void) { return started_here ? MPI_Finalize() : MPI_SUCCESS; }
static int end_all(int exit_code) { return MPI_Abort(MPI_COMM_WORLD, exit_code); }

static int join(LatheMpiHandle* group, int* rank, int* size, int* last_tag) {
  MPI_Comm c;
  int code = MPI_Comm_dup(MPI_COMM_WORLD, &c);
  if (code) return code;
  keep(group, &c, sizeof c);
  code = MPI_Comm_set_errhandler(c, MPI_ERRORS_RETURN);
  if (!code) code = MPI_Comm_rank(c, rank);
  if (!code) code = MPI_Comm_size(c, size);
  int *upper = NULL, found = 0;
  if (!code) code = MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &upper, &found);
  *last_tag = !code && found ? *upper : 32767;  // the least that the standard allows
  return code;
}

static int leave(LatheMpiHandle* group) {
  MPI_Comm c = comm_of(*group);
  return MPI_Comm_free(&c);
}

// The count of an MPI call is an int. More bytes than that are one element of a type that is made for the message: the
// one case in which the library allocates.
static int large_type(size_t bytes, MPI_Datatype* out) {
  enum { kBlock = 1 << 20 };
  MPI_Datatype block, blocks;
  int code = MPI_Type_contiguous(kBlock, MPI_BYTE, &block);
  if (code) return code;
  code = MPI_Type_contiguous((int)(bytes / kBlock), block, &blocks);
  MPI_Type_free(&block);
  if (code) return code;
  const int counts[2] = {1, (int)(bytes % kBlock)};
  const MPI_Aint places[2] = {0, (MPI_Aint)(bytes - bytes % kBlock)};
  const MPI_Datatype types[2] = {blocks, MPI_BYTE};
  code = MPI_Type_create_struct(2, counts, places, types, out);
  MPI_Type_free(&blocks);
  return code ? code : MPI_Type_commit(out);
}

static int send(LatheMpiHandle group, const void* bytes, size_t count, int to, int tag, LatheMpiHandle* request) {
  MPI_Request r = MPI_REQUEST_NULL;
  int code;
  if (count <= INT_MAX) {
    code = MPI_Isend(bytes, (int)count, MPI_BYTE, to, tag, comm_of(group), &r);
  } else {
    MPI_Datatype type;
    if ((code = large_type(count, &type))) return code;
    code = MPI_Isend(bytes, 1, type, to, tag, comm_of(group), &r);
    MPI_Type_free(&type);  // lives on until the message is done
  }
  keep(request, &r, sizeof r);
  return code;
}

static int receive(LatheMpiHandle group, void* bytes, size_t count, int from, int tag, LatheMpiHandle* request) {
  MPI_Request r = MPI_REQUEST_NULL;
  int code;
  if (count <= INT_MAX) {
    code = MPI_Irecv(bytes, (int)count, MPI_BYTE, from, tag, comm_of(group), &r);
  } else {
    MPI_Datatype type;
    if ((code = large_type(count, &type))) return code;
    code = MPI_Irecv(bytes, 1, type, from, tag, comm_of(group), &r);
    MPI_Type_free(&type);
  }
  keep(request, &r, sizeof r);
  return code;
}

static int barrier(LatheMpiHandle group, LatheMpiHandle* request) {
  MPI_Request r = MPI_REQUEST_NULL;
  const int code = MPI_Ibarrier(comm_of(group), &r);
  keep(request, &r, sizeof r);
  return code;
}

static size_t count_of(const MPI_Status* status) {
  MPI_Count bytes = 0;
  return MPI_Get_elements_x(status, MPI_BYTE, &bytes) == MPI_SUCCESS && bytes > 0 ? (size_t)bytes : 0;
}

static int test(LatheMpiHandle* request, int* done, size_t* count) {
  MPI_Request r = request_of(request);
  MPI_Status status;
  memset(&status, 0, sizeof status);  // a library that fails may leave it as it was
  const int code = MPI_Test(&r, done, &status);
  keep(request, &r, sizeof r);
  if (code || *done) *count = count_of(&status);
  return code;
}

static int cancel(LatheMpiHandle* request) {
  MPI_Request r = request_of(request);
  return r == MPI_REQUEST_NULL ? MPI_SUCCESS : MPI_Cancel(&r);
}

static int probe(LatheMpiHandle group, int* from, int* tag, int* found, size_t* count) {
  MPI_Status status;
  const int code =
      MPI_Iprobe(*from < 0 ? MPI_ANY_SOURCE : *from, *tag < 0 ? MPI_ANY_TAG : *tag, comm_of(group), found, &status);
  if (code || !*found) return code;
  *from = status.MPI_SOURCE;
  *tag = status.MPI_TAG;
  *count = count_of(&status);
  return code;
}

static int all_reduce(LatheMpiHandle group, float* data, int count) {
  return MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, comm_of(group));
}

static const LatheMpi table = {
    .version = LATHE_MPI_VERSION,
    .name = LATHE_MPI_NAME,
    .library = library,
    .error_text = error_text,
    .is_truncated = is_truncated,
    .init = init,
    .finalize = finalize,
    .end_all = end_all,
    .join = join,
    .leave = leave,
    .send = send,
    .receive = receive,
    .barrier = barrier,
    .test = test,
    .cancel = cancel,
    .probe = probe,
    .all_reduce = all_reduce,
};

const LatheMpi* lathe_mpi_plugin(void) { return &table; }
