// An op with an effect, for tests of what passes and plan do with ordered nodes.
#pragma once

#include <algorithm>

#include "ir/builder.h"

namespace lathe::ir_test {

struct SendParams {
  int64_t to = 0;
  template <class F>
  static void fields(F&& f) {
    f("to", &SendParams::to);
  }
};
struct Send {  // has an effect
  using Params = SendParams;
  static constexpr OpInfo info{.name = "send", .doc = "x, which is sent", .inputs = 1, .traits = kOrdered};
  static Types infer(ArgTypes x, const Params&) { return {x[0]}; }
  static void reference(RefOuts y, RefIns x, const Params&) { std::copy_n(x[0].data, x[0].numel(), y[0].data); }
  static std::vector<Sample> samples() { return {}; }
};

inline constinit const OpDef send_op = make_op<Send>();

inline Value send(Value x, int64_t to) { return x.builder().add1(send_op, std::span(&x, 1), SendParams{to}); }
// The `to` of all sends, in order.
inline Ints sent(const Graph& g) {
  Ints out;
  for (const Node& n : g.nodes)
    if (n.op == &send_op) out.push_back(n.get<SendParams>().to);
  return out;
}

}  // namespace lathe::ir_test
