#include "backend/cuda/cuda_site.h"

#include <algorithm>
#include <cstdlib>

#include "ops/fused.h"

namespace lathe {

int cuda_data_type(DType t) { return t == DType::f32 ? cuda::kR32F : t == DType::f64 ? cuda::kR64F : -1; }
int cudnn_data_type(DType t) { return t == DType::f32 ? cuda::kDnnFloat : t == DType::f64 ? cuda::kDnnDouble : -1; }

bool tf32_allowed() {
  const char* v = std::getenv("LATHE_TF32");
  return v && std::string_view(v) == "1";
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

// Takes nodes behind value v into the chain while they have the form that a head can do itself; marks them in `done`.
ValueId absorb_nodes(const Graph& body, HeadChain& c, ValueId v, std::vector<bool>& done) {
  const auto all_readers = readers(body);
  while (c.activation == HeadChain::Activation::none) {
    const auto& next = all_readers[static_cast<size_t>(v)];
    const bool is_output = std::ranges::find(body.outputs, v, &Output::value) != body.outputs.end();
    if (next.size() != 1 || is_output) break;
    const Node& n = body.nodes[static_cast<size_t>(next[0])];
    if (n.is("relu") || n.is("gelu")) {
      c.activation = n.is("relu") ? HeadChain::Activation::relu : HeadChain::Activation::gelu;
    } else if (n.is("add") && n.inputs[0] != n.inputs[1]) {
      const ValueId other = n.inputs[n.inputs[0] == v ? 1 : 0];
      const int whole = input_position(body, other), column = whole < 0 ? bias_position(body, other) : -1;
      if (whole >= 0 && c.residual < 0)
        c.residual = whole;
      else if (column >= 0 && c.bias < 0)
        c.bias = column;
      else
        break;
    } else {
      break;
    }
    done[static_cast<size_t>(next[0])] = true;
    v = n.outputs[0];
  }
  return v;
}

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
  std::vector<bool> done(body.nodes.size(), false);
  done[static_cast<size_t>(head - body.nodes.begin())] = true;
  const ValueId product = absorb ? absorb_nodes(body, c, head->outputs[0], done) : head->outputs[0];
  // The output that is this value, or else one that can hold it.
  auto output = std::ranges::find(body.outputs, product, &Output::value);
  if (output == body.outputs.end())
    output = std::ranges::find_if(body.outputs, [&](const Output& o) { return body.type(o.value) == c.head_out; });
  if (output == body.outputs.end()) return decline("no output can hold the result");
  c.output = static_cast<int>(output - body.outputs.begin());
  if (body.outputs.size() == 1 && body.outputs[0].value == product) return c;

  Graph rest = body;
  rest.nodes.clear();
  for (size_t i = 0; i < body.nodes.size(); ++i)
    if (!done[i]) rest.nodes.push_back(body.nodes[i]);
  rest.inputs.push_back({product, InputKind::batch, "product"});
  c.loop = lower_loop(rest, reason);
  if (!c.loop) return std::nullopt;
  return c;
}

}  // namespace lathe
