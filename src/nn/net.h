// Net: what layers need while they build a forward graph: a builder, named state, random streams, and the mode.
// Layers are functions of (Net&, name, inputs...); names of state follow PyTorch's.
#pragma once

#include <string>
#include <vector>

#include "ir/builder.h"

namespace lathe {

enum class Mode { train, eval };

// How a state tensor starts; drawn on the host from (seed, name).
struct Init {
  enum class Kind { constant, uniform, normal } kind = Kind::constant;
  double value = 0;  // constant: the value; uniform: in [-value, value); normal: standard deviation

  static Init constant(double v) { return {Kind::constant, v}; }
  static Init uniform(double bound) { return {Kind::uniform, bound}; }
  static Init normal(double std) { return {Kind::normal, std}; }
};

// How a tensor stands in files, where PyTorch's order differs: seen as `view`, axes permuted by `perm`, as `shape`.
struct FileLayout {
  Ints view, perm, shape;
  bool plain() const { return perm.empty(); }
};

struct StateSpec {
  std::string name;
  TensorType type;
  InputKind kind = InputKind::param;
  Init init;
  FileLayout file;
};

class Net {
 public:
  Net(Builder& b, Mode mode) : b_(b), mode_(mode) {}

  Builder& builder() { return b_; }
  Mode mode() const { return mode_; }
  bool training() const { return mode_ == Mode::train; }

  Value param(const std::string& name, const Shape&, Init, FileLayout = {});
  Value buffer(const std::string& name, const Shape&, Init);
  // The step writes `now` to the buffer when it accepts the step (finite loss and gradients).
  void update_buffer(Value buffer, Value now) { buffer_updates_.push_back({buffer, now}); }

  // Random ops: key = {seed, step}, index = global sample indices; set by the step before the model is built.
  Value key, index;
  int64_t next_stream() { return stream_++; }

  const std::vector<StateSpec>& specs() const { return specs_; }
  const std::vector<Value>& params() const { return params_; }
  const std::vector<std::pair<Value, Value>>& buffer_updates() const { return buffer_updates_; }

 private:
  Builder& b_;
  Mode mode_;
  int64_t stream_ = 1;
  std::vector<StateSpec> specs_;
  std::vector<Value> params_;
  std::vector<std::pair<Value, Value>> buffer_updates_;
};

}  // namespace lathe
