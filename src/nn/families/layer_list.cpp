#include "nn/families/layer_list.h"

#include <algorithm>
#include <map>

#include "nn/layers.h"
#include "ops/adaptive_pool.h"
#include "ops/avg_pool.h"
#include "ops/concat.h"
#include "ops/conv2d.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/group_norm.h"
#include "ops/max_pool.h"
#include "ops/pixel_shuffle.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "ops/resize.h"
#include "ops/slice.h"

namespace lathe {
namespace {

// Shapes as a reader of a recipe knows them: the batch is N.
std::string shape_text(const Shape& s) {
  std::string out = "[N";
  for (int i = 1; i < s.ndim(); ++i) out += fmt::format(", {}", s[i]);
  return out + "]";
}

class ListBuilder {
 public:
  ListBuilder(Net& net, const ModelConfig& c) : net_(net), c_(c) {}

  Value build(Value x) {
    for (at_ = 0; at_ < c_.layer_list.size(); ++at_) {
      const LayerSpec& s = c_.layer_list[at_];
      try {
        x = layer(s, x);
      } catch (const LayerError&) {
        throw;
      } catch (const UserError& e) {
        fail(fmt::format("{} of {}: {}", s.type, shape_text(x_.shape()), e.what()));
      }
    }
    return x;
  }

  [[noreturn]] void fail(const std::string& message) const { throw LayerError(at_, message); }
  void last() { at_ = c_.layer_list.size() - 1; }

 private:
  Value layer(const LayerSpec& s, Value before) {
    const std::string given = layer_text(s, "name");
    name_ = given.empty() ? fmt::format("{}{}", s.type, at_) : given;
    if (outputs_.count(name_)) fail(fmt::format("expected a name that no other layer has, got \"{}\"", name_));
    const std::string from = layer_text(s, "input"), add = layer_text(s, "add");
    x_ = from.empty() ? before : output_of("input", from);
    const bool tokens = x_.dtype() == DType::i32;
    if (tokens != (s.type == "embedding"))
      fail(tokens ? fmt::format("expected an embedding as the first layer for tokens, got {}", s.type)
                  : "expected tokens as the input of an embedding: it must be the first layer, for text");
    Value y = body(s, x_);
    if (!add.empty()) {
      const Value other = output_of("add", add);
      if (other.shape() != y.shape())
        fail(fmt::format("add: expected an output of the same shape as {}'s {}, got \"{}\" of {}", s.type,
                         shape_text(y.shape()), add, shape_text(other.shape())));
      y = y + other;
    }
    const std::string f = layer_text(s, "activation");
    if (f != "none") y = activation(f, y);
    outputs_[name_] = y;
    return y;
  }

  Value output_of(const char* key, const std::string& name) const {
    const auto found = outputs_.find(name);
    if (found != outputs_.end()) return found->second;
    std::vector<std::string> names;
    for (const auto& [known, value] : outputs_) names.push_back(known);
    if (names.empty()) names.push_back("none has one");
    fail(fmt::format("{}: expected the name of an earlier layer ({}), got \"{}\"", key, fmt::join(names, ", "), name));
  }

  void want(const LayerSpec& s, bool ok, const char* what) const {
    if (!ok) fail(fmt::format("{}: expected {}, got {}", s.type, what, shape_text(x_.shape())));
  }
  void want_image(const LayerSpec& s) const { want(s, x_.ndim() == 4, "an image [N, height, width, channels]"); }
  void want_sequence(const LayerSpec& s) const { want(s, x_.ndim() == 3, "a sequence [N, positions, width]"); }

  Value pool(const LayerSpec& s, Value x) {
    want_image(s);
    const int64_t kernel = layer_integer(s, "kernel"), given = layer_integer(s, "stride");
    const int64_t stride = given > 0 ? given : kernel, padding = layer_padding(s, "padding");
    const AxisPad h = axis_pad(x.dim(1), kernel, stride, padding), w = axis_pad(x.dim(2), kernel, stride, padding);
    PoolParams p;
    p.kernel_h = p.kernel_w = kernel;
    p.stride_h = p.stride_w = stride;
    p.pad_top = h.before, p.pad_bottom = h.after, p.pad_left = w.before, p.pad_right = w.after;
    return s.type == "max_pool" ? max_pool(x, p) : avg_pool(x, p);
  }

  Value global_pool(const LayerSpec& s, Value x) {
    const bool max = layer_text(s, "kind") == "max";
    if (x.ndim() == 4) return max ? global_max_pool(x) : global_avg_pool(x);
    want(s, x.ndim() == 3, "an image or a sequence");
    return max ? reduce_max(x, {1}) : reduce_mean(x, {1});
  }

  Value adaptive_pool(const LayerSpec& s, Value x) {
    want_image(s);
    const int64_t h = layer_integer(s, "height"), w = layer_integer(s, "width");
    return layer_text(s, "kind") == "max" ? adaptive_max_pool(x, h, w) : adaptive_avg_pool(x, h, w);
  }

  Value resize(const LayerSpec& s, Value x) {
    want_image(s);
    const auto size = [&](const char* key, int axis) {
      const int64_t given = layer_integer(s, key);
      return given > 0 ? given : x.dim(axis) * layer_integer(s, "factor");
    };
    if ((layer_integer(s, "height") > 0 || layer_integer(s, "width") > 0) &&
        std::ranges::find(s.keys, "factor", &std::pair<std::string, LayerValue>::first) != s.keys.end())
      fail("factor: expected either it or height and width, got both");
    const int64_t h = size("height", 1), w = size("width", 2);
    return layer_text(s, "kind") == "nearest" ? resize_nearest(x, h, w) : resize_bilinear(x, h, w);
  }

  Value shuffle(const LayerSpec& s, Value x) {
    want_image(s);
    const int64_t factor = layer_integer(s, "factor");
    return s.type == "pixel_shuffle" ? pixel_shuffle(x, factor) : pixel_unshuffle(x, factor);
  }

  Value join(const LayerSpec& s, Value x) {
    const std::string with = layer_text(s, "with");
    const Value parts[] = {x, output_of("with", with)};
    if (parts[1].ndim() != x.ndim() || parts[1].shape().with_dim(-1, x.dim(-1)) != x.shape())
      fail(fmt::format("with: expected an output that differs from {} in the last number alone, got \"{}\" of {}",
                       shape_text(x.shape()), with, shape_text(parts[1].shape())));
    return concat(parts, -1);
  }

  // Of a layer whose `out` may be 0.
  int64_t width_of(const LayerSpec& s) const {
    const int64_t given = layer_integer(s, "out");
    return given > 0 ? given : c_.classes;
  }

  ConvOptions conv_options(const LayerSpec& s) const {
    return {.kernel = layer_integer(s, "kernel"),
            .stride = layer_integer(s, "stride"),
            .padding = layer_padding(s, "padding"),
            .dilation = layer_integer(s, "dilation"),
            .groups = layer_integer(s, "groups"),
            .bias = layer_flag(s, "bias")};
  }

  Value conv(const LayerSpec& s, Value x) {
    want_image(s);
    return conv2d(net_, name_, x, width_of(s), conv_options(s));
  }

  Value conv_of_sequence(const LayerSpec& s, Value x) {
    want_sequence(s);
    return conv1d(net_, name_, x, width_of(s), conv_options(s), causal(s));
  }

  Value conv_transpose(const LayerSpec& s, Value x) {
    want_image(s);
    return conv_transpose2d(net_, name_, x, width_of(s),
                            {.kernel = layer_integer(s, "kernel"),
                             .stride = layer_integer(s, "stride"),
                             .padding = layer_integer(s, "padding"),
                             .extra = layer_integer(s, "extra"),
                             .groups = layer_integer(s, "groups"),
                             .bias = layer_flag(s, "bias")});
  }

  Value dense(const LayerSpec& s, Value x) {
    const bool bias = layer_flag(s, "bias");
    return x.ndim() == 4 ? linear_of_image(net_, name_, x, width_of(s), bias)
                         : linear(net_, name_, x, width_of(s), bias);
  }

  Value norm(const LayerSpec& s, Value x) {
    if (s.type == "layer_norm") return layer_norm(net_, name_, x, layer_number(s, "eps"));
    if (s.type == "rms_norm") return rms_norm(net_, name_, x);
    if (takes_tokens(c_.layer_list))
      fail(
          fmt::format("expected layer_norm or rms_norm for text: {} mixes a token with the next ones, which it must "
                      "not see",
                      s.type));
    if (s.type == "batch_norm") return batch_norm(net_, name_, x);
    want(s, x.ndim() > 2, "an image or a sequence");
    if (s.type == "instance_norm") return instance_norm(net_, name_, x, layer_number(s, "eps"));
    return group_norm(net_, name_, x, layer_integer(s, "groups"), layer_number(s, "eps"));
  }

  Value sequence(const LayerSpec& s, Value x) {
    want_image(s);
    const bool rows = layer_text(s, "of") == "rows";
    return rows ? reshape(x, {x.dim(0), x.dim(1), x.dim(2) * x.dim(3)})
                : reshape(x, {x.dim(0), x.dim(1) * x.dim(2), x.dim(3)});
  }

  Value positions(const LayerSpec& s, Value x) {
    want_sequence(s);
    return x + embedding(net_, name_, iota(net_.builder(), {DType::i32, {x.dim(1)}}, 0), x.dim(1), x.dim(2));
  }

  Value recurrence(const LayerSpec& s, Value x) {
    want_sequence(s);
    Origin origin(net_.builder(), name_);
    const int64_t width = layer_integer(s, "width"), b = x.dim(0);
    const bool both = layer_flag(s, "both_ways"), last = layer_text(s, "states") == "last";
    if (both && takes_tokens(c_.layer_list)) fail("expected both_ways = false for text: a token must not see the next");
    Values rows;
    for (int64_t t = 0; t < x.dim(1); ++t) rows.push_back(reshape(slice_axis(x, 1, t, 1), {b, x.dim(2)}));
    const bool gru = s.type == "gru";
    Values states = recurrent(net_, name_, "_l0", rows, width, gru), back;
    std::ranges::reverse(rows);
    if (both) back = recurrent(net_, name_, "_l0_reverse", rows, width, gru);
    const auto beside = [&](Value there, Value again) {
      const Value parts[] = {there, again};
      return both ? concat(parts, 1) : there;
    };
    const size_t n = states.size();
    if (last) return beside(states.back(), both ? back.back() : Value());
    for (size_t t = 0; t < n; ++t) {
      const Value state = beside(states[t], both ? back[n - 1 - t] : Value());
      states[t] = reshape(state, {b, 1, state.dim(1)});
    }
    return concat(states, 1);
  }

  // A token predicts the next one.
  bool causal(const LayerSpec& s) const {
    const bool given = layer_flag(s, "causal");
    if (takes_tokens(c_.layer_list) && !given)
      fail("expected causal = true: a token predicts the next one, which it must not see");
    return given;
  }

  Value attention(const LayerSpec& s, Value x) {
    want_sequence(s);
    return self_attention(net_, name_, x,
                          {.heads = layer_integer(s, "heads"),
                           .kv_heads = layer_integer(s, "kv_heads"),
                           .causal = causal(s),
                           .bias = layer_flag(s, "bias"),
                           .rotary_base = layer_flag(s, "rotary") ? 10000.0 : 0.0});
  }

  Value transformer(const LayerSpec& s, Value x) {
    want_sequence(s);
    const int64_t d = x.dim(2), given = layer_integer(s, "feed_forward");
    const double rate = layer_number(s, "dropout");
    x = x + self_attention(net_, name_ + ".attn", layer_norm(net_, name_ + ".ln_1", x),
                           {.heads = layer_integer(s, "heads"), .causal = causal(s), .dropout = rate});
    const Value y =
        gelu(linear(net_, name_ + ".mlp.c_fc", layer_norm(net_, name_ + ".ln_2", x), given > 0 ? given : 4 * d));
    return x + dropout(net_, linear(net_, name_ + ".mlp.c_proj", y, d), rate);
  }

  Value plain(const LayerSpec& s, Value x) {
    if (s.type == "dropout") return dropout(net_, x, layer_number(s, "rate"));
    if (s.type == "flatten") return reshape(x, {x.dim(0), x.shape().numel() / x.dim(0)});
    if (s.type == "activation") return activation(layer_text(s, "function"), x);
    if (s.type == "prelu") return prelu(net_, name_, x);
    return embedding(net_, name_, x, c_.classes, layer_integer(s, "width"));
  }

  Value body(const LayerSpec& s, Value x) {
    using L = ListBuilder;
    static constexpr std::pair<std::string_view, Value (L::*)(const LayerSpec&, Value)> kBodies[] = {
        {"conv", &L::conv},
        {"conv1d", &L::conv_of_sequence},
        {"conv_transpose", &L::conv_transpose},
        {"dense", &L::dense},
        {"batch_norm", &L::norm},
        {"layer_norm", &L::norm},
        {"rms_norm", &L::norm},
        {"group_norm", &L::norm},
        {"instance_norm", &L::norm},
        {"max_pool", &L::pool},
        {"avg_pool", &L::pool},
        {"global_pool", &L::global_pool},
        {"adaptive_pool", &L::adaptive_pool},
        {"resize", &L::resize},
        {"pixel_shuffle", &L::shuffle},
        {"pixel_unshuffle", &L::shuffle},
        {"concat", &L::join},
        {"dropout", &L::plain},
        {"flatten", &L::plain},
        {"activation", &L::plain},
        {"prelu", &L::plain},
        {"sequence", &L::sequence},
        {"embedding", &L::plain},
        {"positions", &L::positions},
        {"lstm", &L::recurrence},
        {"gru", &L::recurrence},
        {"attention", &L::attention},
        {"transformer", &L::transformer},
    };
    for (const auto& [type, build] : kBodies)
      if (type == s.type) return (this->*build)(s, x);
    LATHE_CHECK(false, "no layer of type {}", s.type);
    return x;
  }

  Net& net_;
  const ModelConfig& c_;
  size_t at_ = 0;
  std::string name_;
  Value x_;
  std::map<std::string, Value> outputs_;
};

}  // namespace

bool takes_tokens(const std::vector<LayerSpec>& layers) { return !layers.empty() && layers[0].type == "embedding"; }

Value build_layers(Net& net, const ModelConfig& c, Value x) {
  ListBuilder builder(net, c);
  if (c.layer_list.empty()) throw LayerError(0, "expected at least one layer");
  const Value y = builder.build(x);
  builder.last();
  Shape wanted{x.dim(0), c.classes};
  const char* what = "a number for each class";
  if (takes_tokens(c.layer_list)) wanted = {x.dim(0), x.dim(1), c.classes}, what = "a number for each token";
  if (c.pixels) wanted = {x.dim(0), x.dim(1), x.dim(2), c.classes}, what = "numbers for each pixel of the image";
  if (y.shape() != wanted)
    builder.fail(fmt::format("expected {} ({}) as the output of the last layer, got {}", shape_text(wanted), what,
                             shape_text(y.shape())));
  return reshape(y, {y.shape().numel() / c.classes, c.classes});
}

}  // namespace lathe
