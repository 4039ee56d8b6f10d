// OpDef: everything Lathe knows about one op, as a plain struct of functions. An op is written as a struct of static
// functions and turned into an OpDef by make_op<T>():
//
//   struct Softmax {
//     using Params = SoftmaxParams;                        // a struct with `fields`, or NoParams
//     static constexpr OpInfo info{.name = "softmax", .doc = "..."};
//     static Types infer(ArgTypes, const Params&);         // type rule; throws UserError
//     static Values vjp(const Vjp&, const Params&);        // cotangents of the inputs, as graph nodes
//     static Values expand(Builder&, ArgValues, const Params&);  // composites: the op in terms of others
//     static Cost cost(ArgTypes, ArgTypes out, const Params&);
//     static void reference(RefOuts, RefIns, const Params&);     // plain loops in f64: the definition
//     static std::vector<Sample> samples();
//   };
//
// Beside these, where they apply:
//
//     static PlacementRows placements(ArgTypes in, ArgTypes out, const Params&);  // how it may be divided among ranks
//     static Params resized(ArgTypes in, ArgTypes out, Params);  // parameters that hold sizes, for other sizes
//     static void over_ranks(RanksOuts, RanksIns, RanksParams<Params>);  // collectives: the definition, of all ranks
//
// A composite (an op with expand) may leave out infer, reference, vjp and cost: they follow from the expansion. An op
// with neither vjp nor expand is not differentiable.
#pragma once

#include <concepts>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

#include "base/error.h"
#include "base/shape.h"
#include "ir/attr.h"
#include "ir/placement.h"

namespace lathe {

class Builder;
class Value;
struct Node;

using Types = std::vector<TensorType>;         // of several values
using ArgTypes = std::span<const TensorType>;  // of an op's inputs or outputs
using Values = std::vector<Value>;             // of the graph under construction
using ArgValues = std::span<const Value>;      // an op's inputs

// Parameters of a node: an immutable struct that remembers its type, so that an op is never given another op's.
class ParamsPtr {
 public:
  ParamsPtr(std::nullptr_t = nullptr) {}  // none
  template <class P>
  ParamsPtr(std::shared_ptr<P> p) : data_(std::move(p)), type_(&typeid(P)) {}  // see make_params
  const void* get() const { return data_.get(); }                              // a P, or null
  explicit operator bool() const { return data_ != nullptr; }                  // false: none
  const std::type_info& type() const { return *type_; }                        // of P; of void where there are none
  friend bool operator==(const ParamsPtr& a, const ParamsPtr& b) { return a.data_ == b.data_; }  // the same object

 private:
  std::shared_ptr<const void> data_;
  const std::type_info* type_ = &typeid(void);
};

enum Trait : unsigned {    // What passes may assume of an op; a set of bits.
  kElementwise = 1u << 0,  // a row of the elementwise table: equal shapes in and out
  kRandom = 1u << 1,       // draws random numbers: never merged
  kView = 1u << 2,         // output is the input's memory under another shape
  kReduction = 1u << 3,    // reduces axes by sum or max
  kProduct = 1u << 4,      // sums of products of operands of one type: on 16 bits where the recipe asks for it
  // Has an effect outside of the graph: never merged, dropped, computed again or moved across another ordered node. The
  // order is that of the nodes in the graph.
  kOrdered = 1u << 5,
  kExact = 1u << 6,    // no rounding: what comes out is the same on every device
  kInPlace = 1u << 7,  // result i may lie in the place of input i, whose type it has
};

struct OpInfo {           // What an op says of itself.
  std::string_view name;  // in text and errors
  std::string_view doc;   // one line for people
  int inputs = 1;         // -1: any number, at least one
  unsigned traits = 0;    // Trait bits
};

struct Cost {                // Work of a node, for plans and reports.
  double flops = 0;          // arithmetic operations
  double bytes_read = 0;     // from memory, at least
  double bytes_written = 0;  // to memory, at least
  double bytes_sent = 0;     // to other ranks, by each of them
  double turns = 0;          // messages that wait for each other
};

// A tensor of the reference interpreter: every dtype is held in f64, dense, row-major.
struct RefTensor {
  TensorType type;                                         // what it stands for
  double* data = nullptr;                                  // of numel() elements
  const Shape& shape() const { return type.shape; }        // of the type
  int64_t numel() const { return type.numel(); }           // elements
  double& operator[](int64_t i) const { return data[i]; }  // element i in row-major order
};
using RefIns = std::span<const RefTensor>;   // inputs of a reference loop
using RefOuts = std::span<const RefTensor>;  // outputs of a reference loop

using RanksIns = std::span<const std::vector<RefTensor>>;   // inputs of a node, by rank
using RanksOuts = std::span<const std::vector<RefTensor>>;  // outputs of a node, by rank
template <class P>
using RanksParams = std::span<const P* const>;  // parameters of a node, by rank

// One test case of an op: input types with value ranges, and parameters.
struct SampleInput {
  TensorType type;         // of the input
  double lo = -1, hi = 1;  // integer types: whole numbers in [lo, hi]
  double gap = 0;          // |x| >= gap: keeps finite differences away from a kink at 0
};
struct Sample {                     // One test case of an op.
  std::string label;                // unique within the op
  std::vector<SampleInput> inputs;  // in order
  ParamsPtr params;                 // make_params of the op's Params
};

// What a vjp rule sees: inputs and outputs of the node and the cotangents of its outputs.
struct Vjp {
  Builder& b;                         // where the gradient's nodes go
  ArgValues x;                        // inputs of the node
  ArgValues y;                        // outputs of the node
  std::span<const Value> dy_or_none;  // an invalid Value where nothing flows back

  bool has_dy(int i = 0) const;  // whether anything flows back through output i
  Value dy(int i = 0) const;     // zeros where nothing flows back
};

struct OpDef {                            // An op as data; made by make_op.
  OpInfo info;                            // name, doc, arity, traits
  const std::type_info* params_type;      // typeid of Params
  Attrs (*to_attrs)(const void* params);  // by the fields of Params
  ParamsPtr (*from_attrs)(const Attrs&);  // UserError on unknown names or wrong kinds; absent fields keep defaults
  Types (*infer)(ArgTypes, const void* params);               // types of the outputs; UserError where inputs do not fit
  Values (*vjp)(const Vjp&, const void* params);              // null: follows from expand, or there is none
  Values (*expand)(Builder&, ArgValues, const void* params);  // null: a primitive
  Cost (*cost)(ArgTypes in, ArgTypes out, const void* params);  // of one node
  void (*reference)(RefOuts, RefIns, const void* params);       // the definition, in f64
  std::vector<Sample> (*samples)();                             // test cases
  // How the op may be divided, beside all replicated, which it always may. Null: in no other way; composites: as their
  // expansions.
  PlacementRows (*placements)(ArgTypes in, ArgTypes out, const void* params);
  ParamsPtr (*resized)(ArgTypes in, ArgTypes out, const void* params);      // null: parameters hold no sizes
  void (*over_ranks)(RanksOuts, RanksIns, std::span<const void* const> p);  // null: no collective

  std::string_view name() const { return info.name; }           // of the op
  bool has(Trait t) const { return (info.traits & t) != 0; }    // whether the trait holds
  bool is_collective() const { return over_ranks != nullptr; }  // needs all ranks
  // A node by itself can be executed; else autodiff expands it, or other ranks take part. It has samples then.
  bool runs_alone() const { return !samples().empty(); }
  bool is_composite() const { return expand != nullptr; }                         // made of other ops
  bool is_differentiable() const { return vjp != nullptr || expand != nullptr; }  // a gradient can be had
};

struct NoParams {
  friend bool operator==(const NoParams&, const NoParams&) = default;
  template <class F>
  static void fields(F&&) {}
};

template <class P>
ParamsPtr make_params(P params) {  // as nodes hold them
  return std::make_shared<const P>(std::move(params));
}

namespace detail {

const Attr* find_attr(const Attrs&, std::string_view name);
void check_attr_names(const Attrs& given, const std::vector<std::string_view>& known);
[[noreturn]] void throw_attr_kind(std::string_view name, const char* expected);
// Facets of composites that follow from the expansion. UserError with the op's name where it is without end.
using Expand = Values (*)(Builder&, ArgValues, const void*);
Types infer_by_expansion(std::string_view op, Expand, ArgTypes, const void*);
Cost cost_by_expansion(std::string_view op, Expand, ArgTypes, const void*);
void reference_by_expansion(std::string_view op, Expand, RefOuts, RefIns, const void*);
Cost cost_of_bytes(ArgTypes in, ArgTypes out);

template <class P>
Attrs to_attrs(const void* params) {
  Attrs attrs;
  const P& p = *static_cast<const P*>(params);
  P::fields([&](std::string_view name, auto member) { attrs.emplace_back(name, Attr(p.*member)); });
  return attrs;
}

template <class P>
ParamsPtr from_attrs(const Attrs& attrs) {
  auto p = std::make_shared<P>();
  std::vector<std::string_view> known;
  P::fields([&](std::string_view name, auto member) {
    known.push_back(name);
    const Attr* attr = find_attr(attrs, name);
    if (!attr) return;
    using T = std::remove_reference_t<decltype(p.get()->*member)>;
    if (const T* value = std::get_if<T>(attr)) {
      p.get()->*member = *value;
    } else if constexpr (std::is_same_v<T, double>) {
      const int64_t* whole = std::get_if<int64_t>(attr);
      if (!whole) throw_attr_kind(name, "a number");
      p.get()->*member = static_cast<double>(*whole);
    } else {
      throw_attr_kind(name, "another kind of value");
    }
  });
  check_attr_names(attrs, known);
  return p;
}

}  // namespace detail

template <class T>
concept HasExpand = requires {
  &T::expand;
};
template <class T>
concept HasInfer = requires {
  &T::infer;
};
template <class T>
concept HasVjp = requires {
  &T::vjp;
};
template <class T>
concept HasCost = requires {
  &T::cost;
};
template <class T>
concept HasReference = requires {
  &T::reference;
};
template <class T>
concept HasPlacements = requires {
  &T::placements;
};
template <class T>
concept HasResized = requires {
  &T::resized;
};
template <class T>
concept HasOverRanks = requires {
  &T::over_ranks;
};
template <class T>
concept HasSamples = requires {
  { T::samples() } -> std::same_as<std::vector<Sample>>;
};

template <class T>
constexpr OpDef make_op() {  // the OpDef of a struct of static functions (top of the file)
  using P = typename T::Params;
  static_assert(HasInfer<T> || HasExpand<T>, "an op needs infer() (or expand(), from which it follows)");
  static_assert(HasReference<T> || HasExpand<T>, "an op needs reference() (or expand(), from which it follows)");
  static_assert(HasSamples<T>, "an op needs samples()");
  OpDef op{};
  op.info = T::info;
  op.params_type = &typeid(P);
  op.to_attrs = detail::to_attrs<P>;
  op.from_attrs = detail::from_attrs<P>;
  if constexpr (HasExpand<T>)
    op.expand = [](Builder& b, ArgValues x, const void* p) -> Values {
      return T::expand(b, x, *static_cast<const P*>(p));
    };
  if constexpr (HasInfer<T>)
    op.infer = [](ArgTypes x, const void* p) -> Types { return T::infer(x, *static_cast<const P*>(p)); };
  else
    op.infer = [](ArgTypes x, const void* p) -> Types {
      return detail::infer_by_expansion(
          T::info.name,
          [](Builder& b, ArgValues v, const void* q) -> Values { return T::expand(b, v, *static_cast<const P*>(q)); },
          x, p);
    };
  if constexpr (HasVjp<T>)
    op.vjp = [](const Vjp& v, const void* p) -> Values { return T::vjp(v, *static_cast<const P*>(p)); };
  if constexpr (HasCost<T>)
    op.cost = [](ArgTypes in, ArgTypes out, const void* p) { return T::cost(in, out, *static_cast<const P*>(p)); };
  else if constexpr (HasExpand<T>)
    op.cost = [](ArgTypes in, ArgTypes, const void* p) {
      return detail::cost_by_expansion(
          T::info.name,
          [](Builder& b, ArgValues v, const void* q) -> Values { return T::expand(b, v, *static_cast<const P*>(q)); },
          in, p);
    };
  else
    op.cost = [](ArgTypes in, ArgTypes out, const void*) { return detail::cost_of_bytes(in, out); };
  if constexpr (HasReference<T>)
    op.reference = [](RefOuts y, RefIns x, const void* p) { T::reference(y, x, *static_cast<const P*>(p)); };
  else
    op.reference = [](RefOuts y, RefIns x, const void* p) {
      detail::reference_by_expansion(
          T::info.name,
          [](Builder& b, ArgValues v, const void* q) -> Values { return T::expand(b, v, *static_cast<const P*>(q)); },
          y, x, p);
    };
  op.samples = T::samples;
  if constexpr (HasPlacements<T>)
    op.placements = [](ArgTypes in, ArgTypes out, const void* p) -> PlacementRows {
      return T::placements(in, out, *static_cast<const P*>(p));
    };
  if constexpr (HasResized<T>)
    op.resized = [](ArgTypes in, ArgTypes out, const void* p) -> ParamsPtr {
      return make_params(T::resized(in, out, *static_cast<const P*>(p)));
    };
  if constexpr (HasOverRanks<T>)
    op.over_ranks = [](RanksOuts y, RanksIns x, std::span<const void* const> p) {
      std::vector<const P*> params;
      for (const void* one : p) params.push_back(static_cast<const P*>(one));
      T::over_ranks(y, x, params);
    };
  return op;
}

// Ops by name; the table itself is src/ops/registry.cpp.
class OpRegistry {
 public:
  explicit OpRegistry(std::vector<const OpDef*> ops);         // sorted by name; names unique
  const OpDef* find(std::string_view name) const;             // null when there is none
  std::span<const OpDef* const> all() const { return ops_; }  // sorted by name

 private:
  std::vector<const OpDef*> ops_;
};

}  // namespace lathe
