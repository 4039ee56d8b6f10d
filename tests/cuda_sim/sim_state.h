// The simulator's inner state, shared by its parts. One card, one process: plain globals behind state().
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "sim.h"

namespace lathe::sim {

using cuda::Address;

constexpr int kMaxStreams = 16;   // number 0 is the host
constexpr size_t kGranule = 256;  // bytes whose accesses are distinguished
using Clock = std::array<uint32_t, kMaxStreams>;
void join(Clock& into, const Clock& other);

struct Access {
  Address address = 0;
  size_t bytes = 0;
  bool write = false;
};

// Who touched a granule last.
struct History {
  uint32_t write_time = 0, write_op = 0;
  uint8_t write_stream = 0;
  std::array<uint32_t, kMaxStreams> read_time{}, read_op{};
};

struct Allocation {
  Address base = 0;
  size_t bytes = 0, mapped = 0;
  std::vector<History> history;        // by granule
  std::vector<unsigned char> touched;  // by granule, during a kernel: bit 0 read, bit 1 written
};

// Work on a stream: does it and reports what it touched. Returns a driver status.
struct Operation {
  std::string name;
  std::function<int(std::vector<Access>&)> work;
  double seconds = 1e-6;  // that it takes on the card
};

struct Capture;

struct SimStream {
  int id = 0;
  Clock clock{};
  bool capturing = false, invalidated = false;
  std::shared_ptr<Capture> capture;  // that it is a branch of
  size_t branch = 0;
  double free_at = 0;  // seconds of card_time(): when all that it was given is done
};

struct SimEvent {
  Clock clock{};
  bool recorded = false, captured = false, timing = false;
  bool asked = false;              // since it was recorded
  double time = 0;                 // seconds of card_time(): when it is reached
  std::weak_ptr<Capture> capture;  // where it was recorded
  size_t number = 0;               // of the capture's events
};

// What a branch of a capture was given: an operation, or an event to record or to wait for.
struct CapturedStep {
  enum class Kind { operation, record, wait } kind = Kind::operation;
  size_t branch = 0;
  Operation operation = {};
  size_t event = 0;
};

// Branch 0 is the stream that the capture began on; streams that wait for an event of it become branches.
struct Capture {
  std::vector<SimStream*> branches;
  std::vector<Clock> clocks;  // by branch: steps of each branch that are before its next one
  std::vector<Clock> events;  // by event: the same
  std::vector<CapturedStep> steps;
};

struct SimGraph {
  std::vector<CapturedStep> steps;
  size_t branches = 1, events = 0;
};

// A copy to the host that the host has not waited for, or one from pinned memory that may still be reading.
struct InFlight {
  int stream = 0;
  uint32_t time = 0;
  std::string name;
  void* dst = nullptr;
  std::vector<unsigned char> data;  // to deliver
  const void* src = nullptr;
  size_t bytes = 0;
  uint64_t hash = 0;
};

struct State {
  std::recursive_mutex mutex;
  std::vector<std::string> reports;
  std::string last_report;
  Counters counters;
  std::map<std::string, int64_t> ranges;  // as Ranges
  int64_t open_ranges = 0;
  bool initialized = false;
  int context_users = 0;
  size_t memory = size_t{2} << 30, used = 0;
  int64_t largest_grid = 65535;  // along y and z
  bool order_check = false;
  std::map<Address, Allocation> device, pinned;
  std::map<Address, size_t> freed;  // for better messages
  std::set<const void*> handles;    // live streams, events, modules, functions, graphs, descriptors
  std::set<int> free_stream_ids;
  Clock host{};
  std::array<uint32_t, kMaxStreams> ticks{};
  std::array<Clock, kMaxStreams> last_clock{};  // of a stream number, for its next owner
  std::vector<std::string> op_names{""};
  std::vector<InFlight> in_flight;
  int capturing = 0;       // streams under capture
  double host_time = 0;    // seconds: until when the host has waited, if the card's clock is not the host's
  double engine_free = 0;  // LATHE_CUDA_SIM_SERIAL: the card does one thing at a time
  int64_t operations = 0;  // done since the start
  int lost = 0;            // the error that every call gets from now on; 0: the card works
};
State& state();

// Time on the card. Operations take their `seconds` there, and the host none: results are at hand at once, only events
// say how long it would have taken. With LATHE_CUDA_SIM_SLOW=factor the card's clock is the host's: an operation takes
// so many times as long as its computation takes here, while the host continues, and it must wait for results.
double slowness();             // 0 without
double card_time();            // seconds; where the host is
void wait_until(double time);  // of card_time()
// LATHE_CUDA_SIM_<NAME> is set. NO_ENGINE: cuDNN has none; NO_ALGORITHM: cuBLASLt has none; NO_TENSOR,
// SLOW_TENSOR, SERIAL: a card without tensor cores, with slow ones, one that does one thing at a time.
bool has_flag(const char* name);

// LATHE_CUDA_SIM_TRACE=file: a line for each graph and copy with its times on the card, and for each call of the host
// that waits or makes something, in the order of the calls.
void trace_call(const char* kind, const char* name);  // kind: "wait", "make"
void trace_span(const char* kind, int stream, double begin, double end);

using Lock = std::lock_guard<std::recursive_mutex>;

int report(int status, std::string text);  // keeps the text, prints it, returns status
bool is_live(const void* handle);

// The live device allocation that holds the whole range; null otherwise.
Allocation* find_device(Address, size_t bytes);
std::string describe(Address);  // "inside freed memory of 4096 bytes", ...
// kSuccess, or an illegal address report naming `what`.
int check_range(const std::string& what, Address, size_t bytes);

// Runs the operation on the stream, or keeps it when the stream is being captured. `handle` must be live.
int submit(cuda::StreamHandle handle, Operation);
int run_now(SimStream&, const Operation&);
void add_captured(SimStream&, Operation);  // of a stream that is being captured
void record_captured(SimStream&, SimEvent&);
int host_waits(const Clock&);  // the host has waited for all before this clock: delivers copies, checks sources
// For calls that a capture forbids: invalidates captures of this process; kSuccess when there are none.
int forbid_in_capture(const char* call);

bool in_context();  // the calling thread has a current context

std::string card_name();  // "simulated card", or LATHE_CUDA_SIM_NAME

int capability();  // compute capability times 10: 80, or LATHE_CUDA_SIM_CAPABILITY

// Device memory that is left: LATHE_CUDA_SIM_TAKEN bytes belong to others.
size_t free_bytes();

// A version number that a test may set for libraries that are opened: LATHE_CUDA_SIM_<NAME>.
int version_of(const char* name, int usual);

}  // namespace lathe::sim
