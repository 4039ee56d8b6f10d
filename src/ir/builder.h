// Builder appends nodes to a graph; Value is a handle to a value of the graph under construction, so that op functions
// read like mathematics: softmax(matmul(x, w) + b).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace lathe {

class Value {
 public:
  Value() = default;
  Value(Builder* b, ValueId id) : builder_(b), id_(id) {}

  bool valid() const { return builder_ != nullptr; }
  explicit operator bool() const { return valid(); }
  Builder& builder() const {
    LATHE_CHECK(valid(), "use of an invalid value");
    return *builder_;
  }
  ValueId id() const { return id_; }
  // Copies: a reference into the graph would not survive the next node.
  TensorType type() const;
  Shape shape() const { return type().shape; }
  DType dtype() const { return type().dtype; }
  int64_t dim(int axis) const { return shape().dim(axis); }
  int ndim() const { return shape().ndim(); }

 private:
  Builder* builder_ = nullptr;
  ValueId id_ = -1;
};

class Builder {
 public:
  explicit Builder(std::string name = "") { graph_.name = std::move(name); }
  explicit Builder(Graph g) : graph_(std::move(g)) {}
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  Value input(TensorType, InputKind, std::string name);
  // Appends a node; output types come from the op's type rule.
  Values add(const OpDef&, ArgValues inputs, ParamsPtr params);
  template <class P>
  Value add1(const OpDef& op, ArgValues inputs, P params) {
    return add(op, inputs, make_params(std::move(params)))[0];
  }
  void output(Value, OutputKind, std::string name);
  void update(Value state_input, Value new_value);  // output of kind state, named like the input

  Value value(ValueId id) { return Value(this, id); }
  const Graph& graph() const { return graph_; }
  Graph& mutable_graph() { return graph_; }
  Graph finish() { return std::move(graph_); }

  // The origin of nodes added from now on.
  const std::string& origin() const { return origin_; }
  void set_origin(std::string origin) { origin_ = std::move(origin); }

 private:
  Graph graph_;
  std::string origin_;
};

// Names the nodes added in a scope: Origin scope(b, "layer1"); nested scopes join with dots.
class Origin {
 public:
  Origin(Builder& b, std::string_view name);
  ~Origin() { b_.set_origin(saved_); }
  Origin(const Origin&) = delete;
  Origin& operator=(const Origin&) = delete;

 private:
  Builder& b_;
  std::string saved_;
};

}  // namespace lathe
