// Builder appends nodes to a graph; Value is a handle to a value of the graph under construction, so that op functions
// read like mathematics: softmax(matmul(x, w) + b).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace lathe {

class Value {  // A value of a graph that is being built.
 public:
  Value() = default;
  Value(Builder* b, ValueId id) : builder_(b), id_(id) {}  // made by Builder

  bool valid() const { return builder_ != nullptr; }  // false: it names nothing
  explicit operator bool() const { return valid(); }  // as valid()
  Builder& builder() const {                          // UserError for one that names nothing
    LATHE_USER_CHECK(valid(), "expected a value of a graph, got one that names nothing (Value{{}})");
    return *builder_;
  }
  ValueId id() const { return id_; }  // in the graph
  // Copies: a reference into the graph would not survive the next node. UserError where the graph has no such value;
  // after Builder::finish() it has none.
  TensorType type() const;
  Shape shape() const { return type().shape; }               // of its type
  DType dtype() const { return type().dtype; }               // of its type
  int64_t dim(int axis) const { return shape().dim(axis); }  // size of an axis, which may be negative; UserError
  int ndim() const { return shape().ndim(); }                // number of axes

 private:
  Builder* builder_ = nullptr;
  ValueId id_ = -1;
};

class Builder {  // Builds a graph node by node.
 public:
  explicit Builder(std::string name = "") { graph_.name = std::move(name); }  // an empty graph
  explicit Builder(Graph g) : graph_(std::move(g)) {}                         // goes on with a graph
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  Value input(TensorType, InputKind, std::string name);  // appends an input
  // Appends a node; output types, one or more, come from the op's type rule. UserError where number or owner of the
  // inputs, or the type of the parameters, are not what the op takes.
  Values add(const OpDef&, ArgValues inputs, ParamsPtr params);
  template <class P>
  Value add1(const OpDef& op, ArgValues inputs, P params) {  // the same for ops with one result
    return add(op, inputs, make_params(std::move(params)))[0];
  }
  void output(Value, OutputKind, std::string name);  // makes a value an output
  // Output of kind state, named like the input. UserError for what is no state input, has another type, or was updated.
  void update(Value state_input, Value new_value);

  Value value(ValueId id) { return Value(this, id); }  // a handle to an existing value
  const Graph& graph() const { return graph_; }        // as far as it is built
  Graph& mutable_graph() { return graph_; }            // for passes that change what is there
  Graph finish();  // the graph; the builder is empty then. UserError where two inputs or two outputs have one name

  // The origin of nodes added from now on.
  const SharedString& origin() const { return origin_; }
  void set_origin(SharedString origin) { origin_ = std::move(origin); }  // see origin()
  Role role() const { return role_; }                                    // of nodes added from now on
  SharedString exchange_origin(SharedString now) { return std::exchange(origin_, std::move(now)); }  // what it was
  void set_role(Role role) { role_ = role; }                                                         // see role()
  void set_place(SharedString origin, Role role) {                                                   // both
    set_origin(std::move(origin));
    set_role(role);
  }

 private:
  ValueId own(Value, std::string_view what) const;  // its id; UserError where it is none of this graph
  void note_state();                                // brings the two below up to date

  Graph graph_;
  SharedString origin_;
  Role role_ = Role::model;
  // By value: its place among the inputs, or -1, and whether an output updates it. As far as they were noted.
  std::vector<int32_t> input_at_;
  std::vector<bool> updated_;
  size_t noted_inputs_ = 0, noted_outputs_ = 0;
};

// Names the nodes added in a scope: Origin scope(b, "layer1"); nested scopes join with dots.
class Origin {
 public:
  Origin(Builder& b, std::string_view name);             // names nodes until its end
  Origin(Builder& b, std::string_view name, Role role);  // and says what they are for
  ~Origin() { b_.set_place(std::move(saved_), role_); }
  Origin(const Origin&) = delete;
  Origin& operator=(const Origin&) = delete;

 private:
  Builder& b_;
  SharedString saved_;
  Role role_;
};

// In a scope, nodes are added in the place of another: with its role, and its origin behind `prefix`.
class InPlaceOf {
 public:
  InPlaceOf(Builder& b, const Node& n, std::string_view prefix = "");  // until its end
  ~InPlaceOf() { b_.set_place(std::move(origin_), role_); }
  InPlaceOf(const InPlaceOf&) = delete;
  InPlaceOf& operator=(const InPlaceOf&) = delete;

 private:
  Builder& b_;
  SharedString origin_;
  Role role_;
};

}  // namespace lathe
