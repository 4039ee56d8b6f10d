// Net: what layers need while they build a forward graph: a builder, named state, random streams, and the mode.
// Layers are functions of (Net&, name, inputs...); names of state follow PyTorch's.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ir/step_set.h"

namespace lathe {

enum class Mode {  // What a net is built for.
  train,           // dropout drops, batch norm takes the batch's statistics
  eval,            // nothing is dropped, norms take the running statistics
};

class Net {  // A network under construction.
 public:
  Net(Builder& b, Mode mode) : b_(b), mode_(mode) {}  // adds to the graph of the builder

  Builder& builder() { return b_; }                       // where nodes go
  Mode mode() const { return mode_; }                     // of the graph
  bool training() const { return mode_ == Mode::train; }  // mode() is train

  // A weight; its input is made at the first call, and the same name means the same weight from then on: layers share
  // it. UserError where shape, first value or layout differ from those of the first call.
  Value param(const std::string& name, const Shape&, Init, FileLayout = {});
  Value buffer(const std::string& name, const Shape&, Init);  // the same for state that is not trained by gradients
  // The step writes `now` to the buffer, unless it is refused (passes/techniques/gate.h).
  void update_buffer(Value buffer, Value now) { buffer_updates_.push_back({buffer, now}); }

  // Random ops: key = {seed, step}, index = global sample indices; set by the step before the model is built.
  Value key, index;                            // invalid where nothing is random
  int64_t next_stream() { return stream_++; }  // for the next random op

  const StateTable& specs() const { return specs_; }            // of all state so far
  const std::vector<Value>& params() const { return params_; }  // weights, in the order of their making
  const std::vector<Value>& values() const { return values_; }  // of specs(), in its order
  const std::vector<std::pair<Value, Value>>& buffer_updates() const { return buffer_updates_; }  // old and new

 private:
  Value state(StateSpec);

  Builder& b_;
  Mode mode_;
  int64_t stream_ = 1;
  StateTable specs_;
  std::vector<Value> params_, values_;
  std::unordered_map<std::string, Value> made_;
  std::vector<std::pair<Value, Value>> buffer_updates_;
};

}  // namespace lathe
