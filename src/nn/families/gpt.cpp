// GPT-2's block order and names (pre-norm, tanh GELU, head tied to the token table); weights are [out, in]. Options
// turn it into LLaMA's: root-mean-square norms, rotary positions, SwiGLU, grouped heads, no biases, a head of its own.
#include "nn/families/model.h"
#include "nn/families/transformer.h"
#include "nn/layers.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/matmul.h"
#include "ops/reshape.h"

namespace lathe {

namespace {

struct Gpt {
  struct Params : TransformerParams {
    int64_t vocab = 256;
    int64_t sequence = 128;
    std::string norm = "layer";
    std::string positions = "learned";
    double rotary_base = 10000;
    std::string mlp = "gelu";
    int64_t kv_heads = 0;
    bool bias = true;
    bool tied = true;
    template <class F>
    static void fields(F&& f) {
      TransformerParams::fields(
          f, "width inside of the feed-forward layers; 0: 4 times model.width, with swiglu 8 / 3 times");
      f("vocab", &Params::vocab, allow::range(2, 1 << 24), "number of tokens; bytes need 256, ASCII text 128");
      f("sequence", &Params::sequence, allow::range(1, 1 << 20), "number of positions");
      f("norm", &Params::norm, allow::one_of({"layer", "rms"}), "layer norm, or LLaMA's root-mean-square norm");
      f("positions", &Params::positions, allow::one_of({"learned", "rotary"}),
        "a learned table of positions, or queries and keys turned by their position");
      f(
          "rotary_base", &Params::rotary_base, allow::above(1, 1e12), "base of the angles of rotary positions",
          +[](const Params& p) { return p.positions == "rotary"; }, "model.positions = \"rotary\"");
      f("mlp", &Params::mlp, allow::one_of({"gelu", "swiglu"}), "feed-forward layers with GELU, or LLaMA's gated ones");
      f("kv_heads", &Params::kv_heads, allow::range(0, 1024),
        "heads of keys and values, each shared by several heads of queries; 0: model.heads");
      f("bias", &Params::bias, "biases in the dense layers");
      f("tied", &Params::tied, "the output layer has the token table as its weight");
    }
  };
  static constexpr FamilyInfo info{
      .name = "gpt",
      .doc = "decoder-only transformer: GPT-2, or in the manner of LLaMA",
      .weights = "GPT-2",
      .published = "GPT-2 small: 124,439,808; Llama 2 7B: 6,738,415,616; Llama 3 8B: 8,030,261,248"};

  static Value build(Net& net, const Params& p, const ModelInputs& in, Value ids) {
    const int64_t b = ids.dim(0), t = ids.dim(1), d = p.width;
    const auto norm = [&](const std::string& name, Value x) {
      return p.norm == "rms" ? rms_norm(net, name, x) : layer_norm(net, name, x);
    };
    const bool learned = p.positions == "learned", gated = p.mlp == "swiglu";
    const int64_t inner = p.feed_forward > 0 ? p.feed_forward : gated ? (8 * d / 3 + 7) / 8 * 8 : 4 * d;
    const AttentionOptions attention{.heads = p.heads,
                                     .kv_heads = p.kv_heads,
                                     .causal = true,
                                     .bias = p.bias,
                                     .rotary_base = learned ? 0 : p.rotary_base,
                                     .dropout = p.dropout};
    Value table;
    Value x = embedding(net, "wte", ids, in.classes, d, &table);
    if (learned) {
      const Value positions = iota(net.builder(), {DType::i32, {t}}, 0);
      x = x + embedding(net, "wpe", positions, p.sequence, d);
    }
    x = dropout(net, x, p.dropout);
    for (int64_t i = 0; i < p.layers; ++i) {
      const std::string h = fmt::format("h.{}", i);
      x = x + self_attention(net, h + ".attn", norm(h + ".ln_1", x), attention);
      const Value z = norm(h + ".ln_2", x);
      Value y = linear(net, h + ".mlp.c_fc", z, inner, p.bias);
      y = gated ? silu(linear(net, h + ".mlp.gate", z, inner, p.bias)) * y : gelu(y);
      x = x + dropout(net, linear(net, h + ".mlp.c_proj", y, d, p.bias), p.dropout);
    }
    x = norm("ln_f", x);
    if (!p.tied) return linear(net, "lm_head", reshape(x, {b * t, d}), in.classes, false);
    Origin origin(net.builder(), "head");
    return matmul(reshape(x, {b * t, d}), table, false, true);
  }

  static std::optional<TokenInput> tokens(const Params& p) { return TokenInput{p.vocab, p.sequence}; }

  static void check(const Params& p, RuleReport& report) {
    check_heads(p.width, p.heads, report);
    if (p.kv_heads > 0 && p.heads % p.kv_heads != 0)
      report.fail({"kv_heads", "heads"},
                  fmt::format("expected a divisor of model.heads = {}, got {}", p.heads, p.kv_heads));
    if (p.positions == "rotary" && p.width / p.heads % 2 != 0)
      report.fail(
          {"positions", "heads", "width"},
          fmt::format("expected an even model.width / model.heads for rotary positions, got {}", p.width / p.heads));
  }

  static std::vector<Params> shrink(Params p, Ints&) {
    shrink_blocks(p);
    p.kv_heads = at_most(p.kv_heads, 1);
    p.vocab = 128;  // generated text is ASCII
    p.sequence = at_most(p.sequence, 8);
    return {p};
  }
};

}  // namespace

extern const ModelFamily gpt_family;
constinit const ModelFamily gpt_family = make_family<Gpt>();

}  // namespace lathe
