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
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "passes/pass.h"
#include "run/executor.h"

namespace lathe {

namespace io {
struct CheckpointFile;  // io/checkpoint.h
}

enum class Keep {  // Which files of a checkpoint.
  all,             // to go on with
  model,           // to evaluate: no optimizer file
};

struct SessionOptions {          // How a session is made.
  std::string device = "cpu";    // as in recipes: "cpu", "opencl:0", "cuda:0", "auto"
  int threads = 0;               // of the cpu; 0: all that there are
  DType precision = DType::f32;  // in which products are computed
  PassOptions options = {};      // of passes: clipping, averages, ...
  PipelineOptions passes = {};   // left out, added, watched
  int64_t budget = 0;            // bytes of arena, if less than the device has; 0: no limit
  int64_t seed = 0;              // of the state's first values
  // One slot holds the inputs that feed() sets; the snapshot is what save() writes from.
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
  double metric(std::string_view name);              // of the last run; waits for it
  std::vector<float> result(std::string_view name);  // of the last run, f32; waits for it
  bool has(std::string_view graph) const;            // whether there is a graph of that name

  const StateTable& state() const { return state_; }                  // the rows
  void initialize(int64_t seed);                                      // first values for all state
  std::vector<float> read(std::string_view state);                    // values of an f32 state
  void write(std::string_view state, std::span<const float> values);  // in its order in memory; UserError

  // A checkpoint in `dir`, published whole or not at all, that load() and others (safetensors, PyTorch's names and
  // order of axes) read. Returns its path.
  std::string save(const std::string& dir, int64_t step, const std::map<std::string, std::string>& info = {});
  // The newest valid checkpoint in `dir`. Its step, or -1 where there is none; `info` as it was saved.
  int64_t load(const std::string& dir, std::map<std::string, std::string>* info = nullptr);
  // Tensors that a checkpoint's path holds, for all rows that are saved. UserError: missing or other ones, all listed.
  void load_files(const std::string& checkpoint, Keep = Keep::all);
  std::vector<io::CheckpointFile> files(Keep = Keep::all);  // as save() writes them; valid until the next call

  // Other steps, another batch size, another device: everything is made again, and state of the same name and type
  // keeps its values. For a moment both plans are allocated; when it throws, the session is as it was.
  Replanned replan(StepSet, const SessionOptions&);

  Executor& executor() { return *executor_; }  // slots, runs ahead, profiles: what loops of recipes are made of

 private:
  void check_type(std::string_view input, DType) const;
  void wait();

  StateTable state_;
  std::unique_ptr<Executor> executor_;
  std::unordered_map<std::string, int64_t> fed_;  // bytes, by input
  bool running_ = false;
};

}  // namespace lathe
