#include "nn/layers.h"
#include "nn/model.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/matmul.h"
#include "ops/reshape.h"

namespace lathe {

// GPT-2's block order and names (pre-norm, tanh GELU, head tied to the token table). Weights are [out, in].
Value build_gpt(Net& net, const ModelConfig& c, Value tokens) {
  const int64_t b = tokens.dim(0), t = tokens.dim(1), d = c.width;
  Value table;
  Value x = embedding(net, "wte", tokens, c.classes, d, &table);
  const Value positions = iota(net.builder(), {DType::i32, {t}}, 0);
  x = dropout(net, x + embedding(net, "wpe", positions, c.sequence, d), c.dropout);
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string h = fmt::format("h.{}", i);
    x = x + causal_attention(net, h + ".attn", layer_norm(net, h + ".ln_1", x), c.heads, c.dropout);
    Value y = gelu(linear(net, h + ".mlp.c_fc", layer_norm(net, h + ".ln_2", x), 4 * d));
    x = x + dropout(net, linear(net, h + ".mlp.c_proj", y, d), c.dropout);
  }
  x = layer_norm(net, "ln_f", x);
  Origin origin(net.builder(), "head");
  return matmul(reshape(x, {b * t, d}), table, false, true);
}

}  // namespace lathe
