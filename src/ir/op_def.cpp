#include "ir/op_def.h"

#include <algorithm>

#include "ir/builder.h"
#include "ir/interpret.h"

namespace lathe {

bool Vjp::has_dy(int i) const { return dy_or_none[static_cast<size_t>(i)].valid(); }

OpRegistry::OpRegistry(std::vector<const OpDef*> ops) : ops_(std::move(ops)) {
  std::ranges::sort(ops_, {}, [](const OpDef* op) { return op->name(); });
  for (size_t i = 1; i < ops_.size(); ++i)
    LATHE_CHECK(ops_[i - 1]->name() != ops_[i]->name(), "op {} is registered twice", ops_[i]->name());
}

const OpDef* OpRegistry::find(std::string_view name) const {
  const auto it = std::ranges::lower_bound(ops_, name, {}, [](const OpDef* op) { return op->name(); });
  return it != ops_.end() && (*it)->name() == name ? *it : nullptr;
}

namespace detail {

const Attr* find_attr(const Attrs& attrs, std::string_view name) {
  for (const auto& [n, attr] : attrs)
    if (n == name) return &attr;
  return nullptr;
}

void check_attr_names(const Attrs& given, const std::vector<std::string_view>& known) {
  for (const auto& [name, attr] : given)
    LATHE_USER_CHECK(std::ranges::find(known, name) != known.end(), "unknown parameter `{}`; known: {}", name,
                     fmt::join(known, ", "));
}

void throw_attr_kind(std::string_view name, const char* expected) {
  throw UserError(fmt::format("parameter `{}`: expected {}", name, expected));
}

namespace {

// Expansions within expansions: what follows from an expansion calls itself for the composites in it.
class Nested {
 public:
  explicit Nested(std::string_view op) {
    constexpr int kMost = 64;
    LATHE_USER_CHECK(depth_ < kMost, "{}: its expansion has no end: it holds the op itself", op);
    ++depth_;
  }
  ~Nested() { --depth_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  static thread_local int depth_;
};
thread_local int Nested::depth_ = 0;

Graph expansion(Expand expand, ArgTypes in, const void* params) {
  Builder b("expansion");
  Values args;
  for (size_t i = 0; i < in.size(); ++i) args.push_back(b.input(in[i], InputKind::batch, "x" + std::to_string(i)));
  const Values out = expand(b, args, params);
  for (size_t i = 0; i < out.size(); ++i) b.output(out[i], OutputKind::result, "y" + std::to_string(i));
  return b.finish();
}

}  // namespace

Types infer_by_expansion(std::string_view op, Expand expand, ArgTypes in, const void* params) {
  const Nested nested(op);
  const Graph g = expansion(expand, in, params);
  Types out;
  for (const Output& o : g.outputs) out.push_back(g.type(o.value));
  return out;
}

Cost cost_by_expansion(std::string_view op, Expand expand, ArgTypes in, const void* params) {
  const Nested nested(op);
  const Graph g = expansion(expand, in, params);
  Cost total;
  for (const Node& n : g.nodes) total.flops += g.cost(n).flops;
  // A kernel for the composite would read its inputs and write its outputs once.
  for (const Input& i : g.inputs) total.bytes_read += static_cast<double>(g.type(i.value).bytes());
  for (const Output& o : g.outputs) total.bytes_written += static_cast<double>(g.type(o.value).bytes());
  return total;
}

void reference_by_expansion(std::string_view op, Expand expand, RefOuts outs, RefIns ins, const void* params) {
  const Nested nested(op);
  Types in;
  std::vector<HostTensor> inputs;
  for (const RefTensor& x : ins) {
    in.push_back(x.type);
    inputs.push_back({x.type, std::vector<double>(x.data, x.data + x.numel())});
  }
  const auto results = interpret(expansion(expand, in, params), inputs, Precision::exact);
  for (size_t i = 0; i < results.size(); ++i) std::ranges::copy(results[i].data, outs[i].data);
}

Cost cost_of_bytes(ArgTypes in, ArgTypes out) {
  Cost c;
  for (const TensorType& t : in) c.bytes_read += static_cast<double>(t.bytes());
  for (const TensorType& t : out) c.bytes_written += static_cast<double>(t.bytes());
  return c;
}

}  // namespace detail
}  // namespace lathe
