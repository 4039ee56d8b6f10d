// Net: what layers need while they build a forward graph: a builder, named state, random streams, and the mode.
// Layers are functions of (Net&, name, inputs...); names of state follow PyTorch's.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/builder.h"

namespace lathe {

enum class Mode {  // What a net is built for.
  train,           // dropout drops, batch norm takes the batch's statistics
  eval,            // nothing is dropped, norms take the running statistics
};

// How a state tensor starts; drawn on the host from (seed, name).
struct Init {
  enum class Kind {  // Distributions.
    constant,        // the same everywhere
    uniform,         // evenly within a range
    normal,          // bell-shaped around 0
  };
  Kind kind = Kind::constant;  // how it is drawn
  double value = 0;            // constant: the value; uniform: in [-value, value); normal: standard deviation

  static Init constant(double v) { return {Kind::constant, v}; }        // everywhere
  static Init uniform(double bound) { return {Kind::uniform, bound}; }  // in [-bound, bound)
  static Init normal(double std) { return {Kind::normal, std}; }        // mean 0
  friend bool operator==(const Init&, const Init&) = default;
};

// How a tensor stands in files, where PyTorch's order differs: seen as `view`, axes permuted by `perm`, as `shape`.
struct FileLayout {
  Ints view, perm, shape;                      // see the struct
  bool plain() const { return perm.empty(); }  // as in memory
  friend bool operator==(const FileLayout&, const FileLayout&) = default;
};

struct StateSpec {                    // A tensor that lives from step to step.
  std::string name;                   // unique; PyTorch's where it has one
  TensorType type;                    // in memory
  InputKind kind = InputKind::param;  // param, buffer, optimizer or gradient
  Init init;                          // first value
  FileLayout file;                    // in checkpoint files
  std::string like = {};              // another state whose first value this one has too; empty: its own
};

// Averages of the weights over steps are state beside them, named "average." and the weight's name.
inline constexpr std::string_view kAveragePrefix = "average.";
StateSpec average_of(const StateSpec&);  // of a weight or buffer

class Net {  // A network under construction.
 public:
  using Known = std::map<std::string, Value, std::less<>>;  // state by name

  // `known` state is used as it is given: no input is made for it.
  Net(Builder& b, Mode mode, Known known = {}) : b_(b), mode_(mode), known_(std::move(known)) {}

  Builder& builder() { return b_; }                       // where nodes go
  Mode mode() const { return mode_; }                     // of the graph
  bool training() const { return mode_ == Mode::train; }  // mode() is train

  // A weight; its input is made at the first call, and the same name means the same weight from then on: layers share
  // it. UserError where shape, first value or layout differ from those of the first call.
  Value param(const std::string& name, const Shape&, Init, FileLayout = {});
  Value buffer(const std::string& name, const Shape&, Init);  // the same for state that is not trained by gradients
  // The step writes `now` to the buffer when it accepts the step (finite loss and gradients).
  void update_buffer(Value buffer, Value now) { buffer_updates_.push_back({buffer, now}); }

  // From now on state for which it is true is read from its average.
  void read_averages(std::function<bool(const StateSpec&)> averaged) { averaged_ = std::move(averaged); }

  // Random ops: key = {seed, step}, index = global sample indices; set by the step before the model is built.
  Value key, index;                            // invalid where nothing is random
  int64_t next_stream() { return stream_++; }  // for the next random op

  const std::vector<StateSpec>& specs() const { return specs_; }  // of all state so far
  const std::vector<Value>& params() const { return params_; }    // weights, in the order of their making
  const std::vector<Value>& values() const { return values_; }    // of specs(), in its order
  const std::vector<std::pair<Value, Value>>& buffer_updates() const { return buffer_updates_; }  // old and new

 private:
  Value state(StateSpec);

  Builder& b_;
  Mode mode_;
  Known known_;
  std::function<bool(const StateSpec&)> averaged_;
  int64_t stream_ = 1;
  std::vector<StateSpec> specs_;
  std::vector<Value> params_, values_;
  std::unordered_map<std::string, size_t> at_;  // by name: its place in specs_
  std::unordered_set<ValueId> param_ids_;       // of params_
  std::vector<std::pair<Value, Value>> buffer_updates_;
};

}  // namespace lathe
