// StateSpec: one row of the state table of a run, a tensor that lives from step to step.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/part.h"
#include "base/shape.h"
#include "ir/graph.h"

namespace lathe {

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

enum class StateFile {  // Which file of a checkpoint holds a tensor.
  none,                 // it is not saved: zero between optimizer steps
  model,                // weights and buffers
  optimizer,            // what --resume needs beside them
  average,              // averages of weights and buffers, under their names
};
std::string_view to_string(StateFile);  // "none", "model", ...

// How a tensor lies on ranks that have a part of it each. A set of one rank has the part in the row's type, a set that
// is yet to be divided the whole.
struct StatePart {
  int64_t axis = -1;                               // along which its elements are divided; -1: every rank has the whole
  Ints whole = {};                                 // shape of all parts together; empty: it is not divided yet
  int64_t first = 0;                               // of the axis: where the part begins
  bool is_split() const { return axis >= 0; }      // now, or by `partition`
  bool is_part() const { return !whole.empty(); }  // the row's type is that of a part
  friend bool operator==(const StatePart&, const StatePart&) = default;
};

struct StateSpec {                        // A tensor that lives from step to step.
  std::string name;                       // unique; PyTorch's where it has one
  TensorType type;                        // in memory
  InputKind kind = InputKind::param;      // param, buffer, optimizer or gradient
  Init init;                              // first value
  FileLayout file;                        // axes in checkpoint files
  std::string like = {};                  // another state that this one begins as a copy of; empty: none
  std::string of = {};                    // the parameter that it belongs to: moments, gradients, averages
  bool gated = false;                     // steps write it, and a refused step must leave every bit as it was
  StateFile saved_in = StateFile::model;  // where it is saved
  std::string saved_as = {};              // name in that file; empty: `name`
  std::string owner = {};                 // who alone may write it: an optimizer, with what makes it another one
  StatePart part = {};                    // of ranks that have a part of it each
  // Of all parts together.
  TensorType whole_type() const { return {type.dtype, part.is_part() ? Shape(part.whole) : type.shape}; }
  Part own() const { return {part.first, part.first + type.shape[static_cast<int>(part.axis)]}; }  // of the split axis
  const std::string& file_name() const { return saved_as.empty() ? name : saved_as; }              // name in its file
  friend bool operator==(const StateSpec&, const StateSpec&) = default;
};

}  // namespace lathe
