// Sequences: tokens, positions, recurrence, attention.
#include <algorithm>

#include "nn/layer_types/layer_keys.h"
#include "ops/concat.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/reshape.h"
#include "ops/slice.h"

namespace lathe {
namespace {

struct SequenceLayer {
  struct Params : LayerParams {
    std::string of = "pixels";
    template <class F>
    static void fields(F&& f) {
      f("of", &Params::of, allow::one_of({"pixels", "rows"}), "a position is a pixel, or a row with all its pixels");
      LayerParams::fields(f);
    }
  };
  static constexpr std::string_view name = "sequence", doc = "an image as a sequence";
  static Value build(LayerContext& c, const Params& p, Value x) {
    c.want_image();
    return p.of == "rows" ? reshape(x, {x.dim(0), x.dim(1), x.dim(2) * x.dim(3)})
                          : reshape(x, {x.dim(0), x.dim(1) * x.dim(2), x.dim(3)});
  }
};

struct EmbeddingLayer {
  struct Params : LayerParams {
    int64_t width = 1;
    template <class F>
    static void fields(F&& f) {
      f("width", &Params::width, allow::required(allow::range(1, kMaxWidth)), "length of the vectors");
      LayerParams::fields(f);
    }
  };
  static constexpr std::string_view name = "embedding", doc =
                                                            "tokens to vectors; as the first layer it makes the "
                                                            "network one for text";
  static constexpr bool takes_tokens = true;
  static Value build(LayerContext& c, const Params& p, Value x) {
    return embedding(c.net, c.name, x, c.classes, p.width);
  }
};

struct PositionsLayer {
  struct Params : LayerParams {};
  static constexpr std::string_view name = "positions", doc = "adds a learned vector to each position";
  static Value build(LayerContext& c, const Params&, Value x) {
    c.want_sequence();
    return x + embedding(c.net, c.name, iota(c.net.builder(), {DType::i32, {x.dim(1)}}, 0), x.dim(1), x.dim(2));
  }
};

struct RecurrentParams : LayerParams {
  int64_t width = 1;
  std::string states = "all";
  bool both_ways = false;
  template <class F>
  static void fields(F&& f) {
    f("width", &RecurrentParams::width, allow::required(allow::range(1, kMaxWidth)), "of the state");
    f("states", &RecurrentParams::states, allow::one_of({"all", "last"}),
      "the states at all positions, or the last one");
    f("both_ways", &RecurrentParams::both_ways, "a second one reads from the end; their states stand side by side");
    LayerParams::fields(f);
  }
};

Value recurrence(LayerContext& c, const RecurrentParams& p, Value x, bool gru) {
  c.want_sequence();
  Origin origin(c.net.builder(), c.name);
  const int64_t b = x.dim(0);
  const bool both = p.both_ways;
  if (both && c.text) c.fail("expected both_ways = false for text: a token must not see the next");
  Values rows;
  for (int64_t t = 0; t < x.dim(1); ++t) rows.push_back(reshape(slice_axis(x, 1, t, 1), {b, x.dim(2)}));
  Values states = recurrent(c.net, c.name, "_l0", rows, p.width, gru), back;
  std::ranges::reverse(rows);
  if (both) back = recurrent(c.net, c.name, "_l0_reverse", rows, p.width, gru);
  const auto beside = [&](Value there, Value again) {
    const Value parts[] = {there, again};
    return both ? concat(parts, 1) : there;
  };
  const size_t n = states.size();
  if (p.states == "last") return beside(states.back(), both ? back.back() : Value());
  for (size_t t = 0; t < n; ++t) {
    const Value state = beside(states[t], both ? back[n - 1 - t] : Value());
    states[t] = reshape(state, {b, 1, state.dim(1)});
  }
  return concat(states, 1);
}

struct LstmLayer {
  struct Params : RecurrentParams {};
  static constexpr std::string_view name = "lstm", doc = "recurrent layer over the positions of a sequence";
  static Value build(LayerContext& c, const Params& p, Value x) { return recurrence(c, p, x, false); }
};

struct GruLayer {
  struct Params : RecurrentParams {};
  static constexpr std::string_view name = "gru", doc = "recurrent layer with fewer gates";
  static Value build(LayerContext& c, const Params& p, Value x) { return recurrence(c, p, x, true); }
};

struct AttentionLayer {
  struct Params : LayerParams {
    int64_t heads = 4, kv_heads = 0;
    bool causal = false, rotary = false, bias = true;
    template <class F>
    static void fields(F&& f) {
      heads_field(f, &Params::heads);
      causal_field(f, &Params::causal);
      f("kv_heads", &Params::kv_heads, allow::range(0, 1024), "heads of keys and values; 0: heads");
      f("rotary", &Params::rotary, "queries and keys are turned by their positions");
      bias_field(f, &Params::bias);
      LayerParams::fields(f);
    }
  };
  static constexpr std::string_view name = "attention", doc = "self-attention over the positions of a sequence";
  static Value build(LayerContext& c, const Params& p, Value x) {
    c.want_sequence();
    return self_attention(c.net, c.name, x,
                          {.heads = p.heads,
                           .kv_heads = p.kv_heads,
                           .causal = c.causal(p.causal),
                           .bias = p.bias,
                           .rotary_base = p.rotary ? 10000.0 : 0.0});
  }
};

struct TransformerLayer {
  struct Params : LayerParams {
    int64_t heads = 4, feed_forward = 0;
    bool causal = false;
    double dropout = 0;
    template <class F>
    static void fields(F&& f) {
      heads_field(f, &Params::heads);
      causal_field(f, &Params::causal);
      f("feed_forward", &Params::feed_forward, allow::range(0, kMaxWidth),
        "width inside; 0: 4 times that of the input");
      f("dropout", &Params::dropout, allow::range(0, 0.999), "part dropped from both branches");
      LayerParams::fields(f);
    }
  };
  static constexpr std::string_view name = "transformer",
                                    doc = "layer norm, attention, sum; layer norm, two dense layers with GELU, sum";
  static Value build(LayerContext& c, const Params& p, Value x) {
    c.want_sequence();
    const int64_t d = x.dim(2), inner = p.feed_forward > 0 ? p.feed_forward : 4 * d;
    x = x + self_attention(c.net, c.name + ".attn", layer_norm(c.net, c.name + ".ln_1", x),
                           {.heads = p.heads, .causal = c.causal(p.causal), .dropout = p.dropout});
    const Value y = gelu(linear(c.net, c.name + ".mlp.c_fc", layer_norm(c.net, c.name + ".ln_2", x), inner));
    return x + dropout(c.net, linear(c.net, c.name + ".mlp.c_proj", y, d), p.dropout);
  }
};

}  // namespace

LayerTypes sequence_layers() {
  return {make_layer<SequenceLayer>(),   make_layer<EmbeddingLayer>(), make_layer<PositionsLayer>(),
          make_layer<LstmLayer>(),       make_layer<GruLayer>(),       make_layer<AttentionLayer>(),
          make_layer<TransformerLayer>()};
}

}  // namespace lathe
