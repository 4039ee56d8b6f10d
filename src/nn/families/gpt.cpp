#include "nn/families/model.h"
#include "nn/layers.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/matmul.h"
#include "ops/reshape.h"

namespace lathe {

// GPT-2's block order and names (pre-norm, tanh GELU, head tied to the token table); weights are [out, in]. Options
// turn it into LLaMA's: root-mean-square norms, rotary positions, SwiGLU, grouped heads, no biases, a head of its own.
Value build_gpt(Net& net, const ModelConfig& c, Value tokens) {
  const int64_t b = tokens.dim(0), t = tokens.dim(1), d = c.width;
  const auto norm = [&](const std::string& name, Value x) {
    return c.norm == "rms" ? rms_norm(net, name, x) : layer_norm(net, name, x);
  };
  const bool learned = c.positions == "learned", gated = c.mlp == "swiglu";
  const int64_t inner = c.feed_forward > 0 ? c.feed_forward : gated ? (8 * d / 3 + 7) / 8 * 8 : 4 * d;
  const AttentionOptions attention{.heads = c.heads,
                                   .kv_heads = c.kv_heads,
                                   .causal = true,
                                   .bias = c.bias,
                                   .rotary_base = learned ? 0 : c.rotary_base,
                                   .dropout = c.dropout};
  Value table;
  Value x = embedding(net, "wte", tokens, c.classes, d, &table);
  if (learned) {
    const Value positions = iota(net.builder(), {DType::i32, {t}}, 0);
    x = x + embedding(net, "wpe", positions, c.sequence, d);
  }
  x = dropout(net, x, c.dropout);
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string h = fmt::format("h.{}", i);
    x = x + self_attention(net, h + ".attn", norm(h + ".ln_1", x), attention);
    const Value z = norm(h + ".ln_2", x);
    Value y = linear(net, h + ".mlp.c_fc", z, inner, c.bias);
    y = gated ? silu(linear(net, h + ".mlp.gate", z, inner, c.bias)) * y : gelu(y);
    x = x + dropout(net, linear(net, h + ".mlp.c_proj", y, d, c.bias), c.dropout);
  }
  x = norm("ln_f", x);
  if (!c.tied) return linear(net, "lm_head", reshape(x, {b * t, d}), c.classes, false);
  Origin origin(net.builder(), "head");
  return matmul(reshape(x, {b * t, d}), table, false, true);
}

}  // namespace lathe
