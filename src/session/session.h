// Session: a step set at work: compiled, planned, allocated on a device, with its state. Feeds, metrics, results and
// state go by name. What recipes train with, and what a program writes a loop of its own with:
//
//   Session session(steps, {.device = "cpu", .seed = 1});
//   session.feed("x", pixels);
//   session.feed("lr", 0.1);
//   session.run("train");
//   session.metric("loss");
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "passes/pass.h"
#include "run/executor.h"

namespace lathe {

namespace comm {
class Collectives;  // comm/collectives.h
}
namespace io {
struct CheckpointFile;  // io/checkpoint.h
enum class Verify;
}  // namespace io

enum class Keep {  // Which files of a checkpoint.
  all,             // to continue with
  model,           // to evaluate: no optimizer file
};

struct SessionOptions {        // How a session is made.
  std::string device = "cpu";  // as in recipes: "cpu", "opencl:0", "cuda:0", "auto"
  int threads = 0;             // of the cpu; 0: all that there are
  // Of passes: clipping, averages, precision, ... Unless it has GateOptions, updates are after_all: the program may go
  // on after a refused step.
  PassOptions options = {};
  PipelineOptions passes = {};  // left out, added, watched
  int64_t budget = 0;           // bytes of arena, if less than the device has; 0: no limit
  int64_t seed = 0;             // of the state's first values
  // Of the ranks that the steps are divided among, each with a session of its own; it outlives the session. Null: one
  // rank. Batch inputs are those of the rank: of n samples part_of(n, blocks, ranks, rank), where blocks are those of
  // SameBitsOptions, or 0. A rank that feeds "stop" with 1 asks
  // all others to end: of the step that it was fed for, the metric "stop" is above 0 on all of them.
  comm::Group* group = nullptr;
  // One slot holds the inputs that feed() sets; the snapshot is what save() copies tensors to.
  ExecutorOptions executor = {.slots = 1, .snapshot = true, .ahead = 1};
};

struct Replanned {                   // What became of the state when a session was planned again.
  std::vector<std::string> carried;  // kept its values
  std::vector<std::string> fresh;    // has its first values: new, or of another type
  std::vector<std::string> dropped;  // is no more
};

class Session {  // See the top of the file.
 public:
  // Runs the passes, plans, opens the device, allocates, and gives state its first values. UserError, DeviceError.
  explicit Session(StepSet, const SessionOptions& = {});
  // Of what was planned already; state has no values yet.
  Session(StateTable, ProgramSet, std::unique_ptr<Device>, const ExecutorOptions&);
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  // An input of kind batch or step, for all runs from now on. UserError: no graph has it, or none with so many bytes.
  void feed(std::string_view input, std::span<const std::byte>);
  // The same, of elements of the input's type.
  template <class T>
  requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) void feed(std::string_view input,
                                                                          std::span<const T> values) {
    check_type(input, dtype_of<T>());
    feed(input, std::as_bytes(values));
  }
  template <class T>
  void feed(std::string_view input, const std::vector<T>& values) {  // the same
    feed(input, std::span<const T>(values));
  }
  void feed(std::string_view input, double value);  // a scalar, whatever its type

  // One run of a graph; every input must have been fed with as much as this graph takes (UserError).
  void run(std::string_view graph);
  // Of the last run, which is waited for. UserError: nothing was run, or the graph has none of that name and type.
  double metric(std::string_view name);  // one number, of any type
  template <class T = float>
  std::vector<T> result(std::string_view name) {  // elements of the result's type
    std::vector<T> out(static_cast<size_t>(port(OutputKind::result, name, dtype_of<T>()).type.numel()));
    read_result(name, std::as_writable_bytes(std::span(out)));
    return out;
  }
  bool has(std::string_view graph) const;  // whether there is a graph of that name

  const StateTable& state() const { return state_; }  // the rows
  void initialize(int64_t seed);                      // first values for all state
  // Values of a state, elements of its type in its order in memory. Copies of it (averages, slow weights) do not follow
  // what is written. On ranks values are those of the whole tensor: of state that is split (StateSpec::part) every rank
  // reads, and each takes its part of what all write. UserError: no such state, another type or number.
  template <class T = float>
  std::vector<T> read(std::string_view state) {
    const StateSpec& s = row(state, dtype_of<T>());
    std::vector<T> out(static_cast<size_t>(s.whole_type().numel()));
    read_state(s, std::as_writable_bytes(std::span(out)));
    return out;
  }
  // The same to write.
  template <class T>
  requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) void write(std::string_view state,
                                                                           std::span<const T> values) {
    write_state(row(state, dtype_of<T>()), std::as_bytes(values), values.size());
  }
  template <class T>
  void write(std::string_view state, const std::vector<T>& values) {  // the same
    write(state, std::span<const T>(values));
  }

  // A checkpoint in `dir`, published whole or not at all, that load() and others (safetensors, PyTorch's names and
  // order of axes) read; it takes the place of one of the same step. Returns its path. One session at a time saves into
  // a directory: what a killed save left there is removed. On ranks all call it, with one directory that all see, and
  // each writes its share of the files that one rank would write; any number of ranks reads them.
  std::string save(const std::string& dir, int64_t step, const std::map<std::string, std::string>& info = {});
  // The newest valid checkpoint in `dir`. Its step, or -1 where `dir` has none; `info` as it was saved. Damaged ones
  // are skipped with a warning (base/warning.h). What was saved comes back as it was: hashes are compared. UserError:
  // all are damaged; tensors are missing or of another type.
  int64_t load(const std::string& dir, std::map<std::string, std::string>* info = nullptr);
  // Tensors that a checkpoint's path holds, for all rows that are saved; no hashes are compared, so values that are not
  // finite are refused. What the file has for other rows is left alone. UserError: missing ones or ones of another
  // type, all listed; the session is as it was then.
  void load_files(const std::string& checkpoint, Keep = Keep::all);
  // As save() writes them: their content is the state at the time when they are written. On ranks all write them at the
  // same time (session/publish.h).
  std::vector<io::CheckpointFile> files(Keep = Keep::all);

  // Other steps, another batch size, another device: everything is made again. State of the same name and type keeps
  // its values, and new copies of it (averages) begin as it is now; so do feeds of the same type and size. For a moment
  // both plans are allocated; when it throws, the session is as it was.
  Replanned replan(StepSet, const SessionOptions&);

  Executor& executor() { return *executor_; }  // slots, runs ahead, profiles: what loops of recipes are made of

 private:
  void check_type(std::string_view input, DType) const;
  const Port& port(OutputKind, std::string_view name, std::optional<DType>);  // of the last run, which is over
  const StateSpec& row(std::string_view state, DType) const;
  void read_result(std::string_view name, std::span<std::byte>);
  void read_state(const StateSpec&, std::span<std::byte>);
  void write_state(const StateSpec&, std::span<const std::byte>, size_t numbers);
  void load_files(const std::string& checkpoint, io::Verify verified, Keep);
  void wait();
  void join_ranks(const SessionOptions&);

  StateTable state_;
  std::unique_ptr<Executor> executor_;
  comm::Collectives* ranks_ = nullptr;            // of the device; null: one rank
  std::unordered_map<std::string, int64_t> fed_;  // bytes, by input
  std::optional<size_t> last_;                    // the Program that ran
  bool running_ = false;
  bool has_snapshot_ = false;
};

}  // namespace lathe
