#include "backend/cuda/cuda_site.h"

#include <algorithm>
#include <cstdlib>

#include "ops/fused.h"
#include "ops/matmul.h"
#include "ops/reduce.h"

namespace lathe {

std::string range_name(const Node& n) {
  return n.origin.empty() ? std::string(n.op->name()) : fmt::format("{} {}", n.op->name(), n.origin);
}

int cuda_data_type(DType t) {
  switch (t) {
    case DType::f32: return cuda::kR32F;
    case DType::f64: return cuda::kR64F;
    case DType::f16: return cuda::kR16F;
    case DType::bf16: return cuda::kR16BF;
    default: return -1;
  }
}

int cudnn_data_type(DType t) {
  switch (t) {
    case DType::f32: return cuda::kDnnFloat;
    case DType::f64: return cuda::kDnnDouble;
    case DType::f16: return cuda::kDnnHalf;
    case DType::bf16: return cuda::kDnnBfloat16;
    default: return -1;
  }
}

bool tf32_allowed() {
  const char* v = std::getenv("LATHE_TF32");
  return v && std::string_view(v) == "1";
}

namespace {
constexpr int kAmpere = 80;  // the first with TF32 and bf16
bool before_ampere(const Target& t) { return t.capability > 0 && t.capability < kAmpere; }
}  // namespace

bool tf32_allowed(const Target& t) { return tf32_allowed() && !before_ampere(t); }

std::string tensor_core_reason(const Target& t, DType type) {
  if (type != DType::bf16 || !before_ampere(t)) return "";
  return fmt::format("bf16 needs compute capability 8.0, the card has {}.{}", t.capability / 10, t.capability % 10);
}

std::string library_reason(const Target& t, std::string_view library) {
  const auto at = std::ranges::find(t.missing, library, &Target::Missing::library);
  return at == t.missing.end() ? "" : at->reason;
}

namespace {

int input_position(const Graph& body, ValueId v) {
  const auto at = std::ranges::find(body.inputs, v, &Input::value);
  return at == body.inputs.end() ? -1 : static_cast<int>(at - body.inputs.begin());
}

// The input that a broadcast repeats over all axes but the last; -1: it is no such value.
int bias_position(const Graph& body, ValueId v) {
  const int32_t made_by = definitions(body)[static_cast<size_t>(v)];
  if (made_by < 0 || !body.nodes[static_cast<size_t>(made_by)].is("broadcast")) return -1;
  const ValueId source = body.nodes[static_cast<size_t>(made_by)].inputs[0];
  const Shape& s = body.type(source).shape;
  if (s.ndim() == 0 || s.numel() != s.dim(-1) || s.dim(-1) != body.type(v).shape.dim(-1)) return -1;
  return input_position(body, source);
}

int output_position(const Graph& body, ValueId v) {
  const auto at = std::ranges::find(body.outputs, v, &Output::value);
  return at == body.outputs.end() ? -1 : static_cast<int>(at - body.outputs.begin());
}

bool sums_axis(const Graph& body, const Node& n, ValueId v, int64_t axis) {
  if (!n.is("reduce_sum") || n.inputs[0] != v || output_position(body, n.outputs[0]) < 0) return false;
  const auto& p = n.get<ReduceParams>();
  return !p.keep_dims && p.axes == Ints{axis};
}

// Takes nodes of the body into the chain while they have a form that a head can do itself; marks them in done().
class Absorber {
 public:
  Absorber(const Graph& body, HeadChain& c)
      : body_(body), chain_(c), readers_(readers(body)), def_(definitions(body)), done_(body.nodes.size(), false) {}

  // From the head's result on; returns the last value that the head computes.
  ValueId run(ValueId v) {
    const ValueId product = v;
    while (chain_.activation == HeadChain::Activation::none && chain_.slope_input < 0) {
      const auto& next = readers_[index(v)];
      if (next.size() != 1 || !take(body_.nodes[index(next[0])], v)) break;
      mark(next[0]);
      v = body_.nodes[index(next[0])].outputs[0];
    }
    if (body_.type(v).shape.ndim() == 2) take_bias_gradient(product, v);
    return v;
  }
  const std::vector<bool>& done() const { return done_; }
  void mark(int32_t node) { done_[index(node)] = true; }

 private:
  static size_t index(int32_t i) { return static_cast<size_t>(i); }

  // Node n, the only reader of v within the body.
  bool take(const Node& n, ValueId v) {
    const int kept = output_position(body_, v);
    if (n.is("gelu") && kept >= 0) chain_.gelu_input = kept;
    if (kept >= 0 && !n.is("gelu")) return false;
    if (n.is("relu") || n.is("gelu")) {
      chain_.activation = n.is("relu") ? HeadChain::Activation::relu : HeadChain::Activation::gelu;
      return true;
    }
    if (n.inputs.size() != 2 || n.inputs[0] == n.inputs[1]) return false;
    const ValueId other = n.inputs[n.inputs[0] == v ? 1 : 0];
    return n.is("add") ? take_sum(other) : n.is("mul") && v == chain_.head.outputs[0] && take_slope(other);
  }

  bool take_sum(ValueId other) {
    const int whole = input_position(body_, other), column = whole < 0 ? bias_position(body_, other) : -1;
    int& place = whole >= 0 ? chain_.residual : chain_.bias;
    if ((whole < 0 && column < 0) || place >= 0) return false;
    place = whole >= 0 ? whole : column;
    return true;
  }

  bool take_slope(ValueId other) {
    const int32_t made_by = def_[index(other)];
    if (made_by < 0 || !body_.nodes[index(made_by)].is("gelu_slope") || readers_[index(other)].size() != 1)
      return false;
    const int z = input_position(body_, body_.nodes[index(made_by)].inputs[0]);
    if (z < 0 || output_position(body_, other) >= 0) return false;
    chain_.slope_input = z;
    mark(made_by);
    return true;
  }

  void take_bias_gradient(ValueId product, ValueId last) {
    const bool bare = last == product && chain_.head.is("matmul");
    int64_t k_axis[2] = {-1, -1};
    if (bare) {
      const auto& p = chain_.head.get<MatmulParams>();
      k_axis[0] = p.trans_a ? 0 : 1;
      k_axis[1] = p.trans_b ? 1 : 0;
    }
    for (size_t i = 0; i < body_.nodes.size(); ++i) {
      const Node& n = body_.nodes[i];
      const bool rows = chain_.slope_input >= 0 && sums_axis(body_, n, last, 0);
      int operand = -1;
      for (int side = 0; bare && side < 2; ++side)
        if (sums_axis(body_, n, chain_.head.inputs[index(side)], k_axis[side])) operand = side;
      if (!rows && operand < 0) continue;
      chain_.summed = operand;
      chain_.bias_gradient = output_position(body_, n.outputs[0]);
      done_[i] = true;
      return;
    }
  }

  const Graph& body_;
  HeadChain& chain_;
  std::vector<std::vector<int32_t>> readers_;
  std::vector<int32_t> def_;
  std::vector<bool> done_;
};

}  // namespace

std::optional<HeadChain> head_chain(const Node& fused, std::string_view op, bool absorb, std::string* reason) {
  const auto& p = fused.get<FusedParams>();
  const auto decline = [&](std::string why) {
    *reason = std::move(why);
    return std::nullopt;
  };
  if (p.kind != op) return decline(fmt::format("a fused node of kind {}", p.kind));
  const Graph& body = *p.body;
  const auto head = std::ranges::find_if(body.nodes, [&](const Node& n) { return n.is(op); });
  if (head == body.nodes.end()) return decline(fmt::format("no {} in the body", op));
  HeadChain c;
  c.head = *head;
  c.head_in = body.types_of(head->inputs);
  c.head_out = body.type(head->outputs[0]);
  for (const ValueId v : head->inputs) {
    c.inputs.push_back(input_position(body, v));
    if (c.inputs.back() < 0) return decline(fmt::format("an input of {} is computed in the body", op));
  }
  Absorber absorber(body, c);
  absorber.mark(static_cast<int32_t>(head - body.nodes.begin()));
  const ValueId product = absorb ? absorber.run(head->outputs[0]) : head->outputs[0];
  // The output that is this value, or else one that can hold it.
  c.output = output_position(body, product);
  for (size_t i = 0; c.output < 0 && i < body.outputs.size(); ++i)
    if (body.type(body.outputs[i].value) == c.head_out) c.output = static_cast<int>(i);
  if (c.output < 0) return decline("no output can hold the result");

  Graph rest = body;
  rest.outputs.clear();
  for (int i = 0; i < static_cast<int>(body.outputs.size()); ++i) {
    const Output& o = body.outputs[static_cast<size_t>(i)];
    if (o.value == product || i == c.gelu_input || i == c.bias_gradient) continue;
    rest.outputs.push_back(o);
    c.loop_outputs.push_back(i);
  }
  if (rest.outputs.empty()) return c;
  if (c.has_gradient()) return decline("more than a gradient behind the product");
  rest.nodes.clear();
  for (size_t i = 0; i < body.nodes.size(); ++i)
    if (!absorber.done()[i]) rest.nodes.push_back(body.nodes[i]);
  rest.inputs.push_back({product, InputKind::batch, "product"});
  c.loop = lower_loop(rest, reason);
  if (!c.loop) return std::nullopt;
  return c;
}

KernelArgs head_args(const HeadChain& c, const KernelArgs& node, int64_t head_workspace) {
  KernelArgs args{{node.out[static_cast<size_t>(c.output)]}, {}, node.workspace};
  for (const int i : c.inputs) args.in.push_back(node.in[static_cast<size_t>(i)]);
  args.workspace.bytes = head_workspace;
  return args;
}

std::unique_ptr<Kernel> in_order(std::unique_ptr<Kernel> first, std::unique_ptr<Kernel> second) {
  class InOrder final : public Kernel {
   public:
    InOrder(std::unique_ptr<Kernel> a, std::unique_ptr<Kernel> b) : first_(std::move(a)), second_(std::move(b)) {}
    void prepare() override {
      first_->prepare();
      second_->prepare();
    }
    void run(Stream& stream) override {
      first_->run(stream);
      second_->run(stream);
    }

   private:
    std::unique_ptr<Kernel> first_, second_;
  };
  return std::make_unique<InOrder>(std::move(first), std::move(second));
}

KernelArgs loop_args(const HeadChain& c, const KernelArgs& node, int64_t head_workspace) {
  KernelArgs args{{}, node.in, node.workspace};
  for (const int i : c.loop_outputs) args.out.push_back(node.out[static_cast<size_t>(i)]);
  args.in.push_back(node.out[static_cast<size_t>(c.output)]);
  args.workspace.offset += head_workspace;
  args.workspace.bytes -= head_workspace;
  return args;
}

}  // namespace lathe
