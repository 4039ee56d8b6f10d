// BERT (Devlin et al., 2019): a post-norm encoder with learned positions; the class is read from the first position,
// or the mean of all, through the pooler. Tokens that only fill a sample up are seen by none, and not in the mean.
// Names as in Hugging Face's files. Of a series the rows are projected where tokens would be looked up, behind a first
// position of their own.
#include <cmath>

#include "nn/families/model.h"
#include "nn/families/transformer.h"
#include "nn/layers.h"
#include "ops/attention.h"
#include "ops/broadcast.h"
#include "ops/cast.h"
#include "ops/concat.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/grouped_attention.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "ops/slice.h"
#include "ops/transpose.h"

namespace lathe {
namespace {

constexpr double kBertEps = 1e-12;

// `words`: bool [B, T], false where there is only filling; invalid: all are words.
Value bert_attention(Net& net, const std::string& name, Value x, int64_t heads, Value words) {
  const int64_t b = x.dim(0), t = x.dim(1), d = x.dim(2);
  LATHE_USER_CHECK(d % heads == 0, "{}: a width of {} does not divide into {} heads", name, d, heads);
  const auto part = [&](const char* what) {
    const Value y = linear(net, fmt::format("{}.self.{}", name, what), x, d);
    return transpose(reshape(y, {b, t, heads, d / heads}), {0, 2, 1, 3});
  };
  const Value q = part("query"), k = part("key"), v = part("value");
  const double scale = 1 / std::sqrt(static_cast<double>(d / heads));
  const Value y =
      words ? masked_attention(q, k, v, reshape(words, {b, 1, 1, t}), false, scale) : attention(q, k, v, false, scale);
  return linear(net, name + ".output.dense", reshape(transpose(y, {0, 2, 1, 3}), {b, t, d}), d);
}

struct Bert {
  struct Params : TransformerParams {
    bool tokens = false;
    int64_t vocab = 256;
    int64_t padding = -1;
    int64_t sequence = 128;
    std::string pool = "token";
    template <class F>
    static void fields(F&& f) {
      TransformerParams::fields(f);
      f("tokens", &Params::tokens,
        "samples are tokens (whole numbers, of npy files); false: rows of numbers or pixels");
      const auto used = +[](const Params& p) { return p.tokens; };
      constexpr std::string_view kNeeds = "model.family = \"bert\" with model.tokens";
      f("vocab", &Params::vocab, allow::range(2, 1 << 24), "number of tokens; bytes need 256, ASCII text 128", used,
        kNeeds);
      f("padding", &Params::padding, allow::range(-1, 1 << 24),
        "the token that fills short samples up: no token sees it, and no mean has it; -1: none", used, kNeeds);
      f("sequence", &Params::sequence, allow::range(1, 1 << 20), "number of positions", used, kNeeds);
      f("pool", &Params::pool, allow::one_of({"token", "mean"}),
        "the class is read from the first token, or from the mean of all");
    }
  };
  static constexpr FamilyInfo info{
      .name = "bert",
      .doc = "encoder transformer over tokens, or over the rows of a series or image",
      .weights = "Hugging Face",
      .published = "without the head, bert-base-uncased: 109,482,240; all-MiniLM-L6-v2: 22,713,216"};

  static Value build(Net& net, const Params& p, const ModelInputs& in, Value x) {
    const int64_t b = x.dim(0), d = p.width, inner = p.feed_forward > 0 ? p.feed_forward : 4 * d;
    Value words;
    if (x.dtype() == DType::i32) {
      if (p.padding >= 0) words = not_equal(x, constant_like(x, static_cast<double>(p.padding)));
      x = embedding(net, "embeddings.word_embeddings", x, p.vocab, d);
    } else {
      const Value rows = reshape(x, {b, x.dim(1), x.dim(2) * x.dim(3)});
      const Value first = net.param("embeddings.cls_token", {1, 1, d}, Init::normal(0.02));
      const Value parts[] = {broadcast_to(first, {b, 1, d}), linear(net, "embeddings.projection", rows, d)};
      x = concat(parts, 1);
    }
    const int64_t t = x.dim(1), positions = p.tokens ? p.sequence : t;
    x = x + embedding(net, "embeddings.position_embeddings", iota(net.builder(), {DType::i32, {t}}, 0), positions, d);
    // All of one segment: the second kind of segment has its row for files that have it.
    if (p.tokens)
      x = x + embedding(net, "embeddings.token_type_embeddings", zeros(net.builder(), {DType::i32, {t}}), 2, d);
    x = dropout(net, layer_norm(net, "embeddings.LayerNorm", x, kBertEps), p.dropout);
    for (int64_t i = 0; i < p.layers; ++i) {
      const std::string h = fmt::format("encoder.layer.{}", i);
      Value y = dropout(net, bert_attention(net, h + ".attention", x, p.heads, words), p.dropout);
      x = layer_norm(net, h + ".attention.output.LayerNorm", x + y, kBertEps);
      y = unary("gelu_erf", linear(net, h + ".intermediate.dense", x, inner));
      y = dropout(net, linear(net, h + ".output.dense", y, d), p.dropout);
      x = layer_norm(net, h + ".output.LayerNorm", x + y, kBertEps);
    }
    Value read;
    if (p.pool == "mean" && words) {
      const Value counts = reshape(cast(words, DType::f32), {b, t, 1});
      const Value number = maximum(reduce_sum(counts, {1}), full(net.builder(), {DType::f32, {b, 1}}, 1));
      read = reduce_sum(x * counts, {1}) / number;
    } else {
      read = p.pool == "mean" ? reduce_mean(x, {1}) : reshape(slice_axis(x, 1, 0, 1), {b, d});
    }
    const Value pooled = tanh(linear(net, "pooler.dense", read, d));
    return linear(net, "classifier", dropout(net, pooled, p.dropout), in.classes);
  }

  static std::optional<TokenInput> tokens(const Params& p) {
    if (!p.tokens) return std::nullopt;
    return TokenInput{p.vocab, p.sequence, false};
  }

  static void check(const Params& p, RuleReport& report) {
    if (p.tokens && p.padding >= p.vocab)
      report.fail({"padding", "vocab"},
                  fmt::format("expected a token below model.vocab = {}, or -1, got {}", p.vocab, p.padding));
    check_heads(p.width, p.heads, report);
  }

  static std::vector<Params> shrink(Params p, Ints&) {
    p.tokens = false;  // there are no generated tokens with a label per sample
    shrink_blocks(p);
    return {p};
  }
};

}  // namespace

extern const ModelFamily bert_family;
constinit const ModelFamily bert_family = make_family<Bert>();

}  // namespace lathe
