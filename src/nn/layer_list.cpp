#include "nn/layer_list.h"

#include <map>

#include "nn/layers.h"
#include "ops/adaptive_pool.h"
#include "ops/avg_pool.h"
#include "ops/conv2d.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/group_norm.h"
#include "ops/max_pool.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

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
    fail(fmt::format("{}: expected the name of an earlier layer ({}), got \"{}\"", key, fmt::join(names, ", "), name));
  }

  void want(const LayerSpec& s, bool ok, const char* what) const {
    if (!ok) fail(fmt::format("{}: expected {}, got {}", s.type, what, shape_text(x_.shape())));
  }
  void want_image(const LayerSpec& s) const { want(s, x_.ndim() == 4, "an image [N, height, width, channels]"); }
  void want_sequence(const LayerSpec& s) const { want(s, x_.ndim() == 3, "a sequence [N, positions, width]"); }

  Value pool(const LayerSpec& s, Value x) const {
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

  Value conv(const LayerSpec& s, Value x) const {
    want_image(s);
    ConvOptions o{.kernel = layer_integer(s, "kernel"),
                  .stride = layer_integer(s, "stride"),
                  .padding = layer_padding(s, "padding"),
                  .dilation = layer_integer(s, "dilation"),
                  .groups = layer_integer(s, "groups"),
                  .bias = layer_flag(s, "bias")};
    return conv2d(net_, name_, x, layer_integer(s, "out"), o);
  }

  Value block(const LayerSpec& s, Value x, const AttentionOptions& attention) const {
    const int64_t d = x.dim(2), given = layer_integer(s, "feed_forward");
    x = x + self_attention(net_, name_ + ".attn", layer_norm(net_, name_ + ".ln_1", x), attention);
    const Value y =
        gelu(linear(net_, name_ + ".mlp.c_fc", layer_norm(net_, name_ + ".ln_2", x), given > 0 ? given : 4 * d));
    return x + dropout(net_, linear(net_, name_ + ".mlp.c_proj", y, d), attention.dropout);
  }

  Value body(const LayerSpec& s, Value x) {
    const std::string& type = s.type;
    if (type == "conv") return conv(s, x);
    if (type == "max_pool" || type == "avg_pool") return pool(s, x);
    if (type == "dense") {
      const int64_t given = layer_integer(s, "out"), out = given > 0 ? given : c_.classes;
      const bool bias = layer_flag(s, "bias");
      if (x.ndim() != 4) return linear(net_, name_, x, out, bias);
      return linear_of_image(net_, name_, x, out, bias);
    }
    if (type == "batch_norm") return batch_norm(net_, name_, x);
    if (type == "layer_norm") return layer_norm(net_, name_, x, layer_number(s, "eps"));
    if (type == "rms_norm") return rms_norm(net_, name_, x);
    if (type == "group_norm") return group_norm(net_, name_, x, layer_integer(s, "groups"), layer_number(s, "eps"));
    if (type == "global_pool") {
      const bool max = layer_text(s, "kind") == "max";
      if (x.ndim() == 4) return max ? global_max_pool(x) : global_avg_pool(x);
      want(s, x.ndim() == 3, "an image or a sequence");
      return max ? reduce_max(x, {1}) : reduce_mean(x, {1});
    }
    if (type == "dropout") return dropout(net_, x, layer_number(s, "rate"));
    if (type == "flatten") return reshape(x, {x.dim(0), x.shape().numel() / x.dim(0)});
    if (type == "activation") return activation(layer_text(s, "function"), x);
    if (type == "sequence") {
      want_image(s);
      return reshape(x, {x.dim(0), x.dim(1) * x.dim(2), x.dim(3)});
    }
    if (type == "embedding") return embedding(net_, name_, x, c_.classes, layer_integer(s, "width"));
    want_sequence(s);
    if (type == "positions")
      return x + embedding(net_, name_, iota(net_.builder(), {DType::i32, {x.dim(1)}}, 0), x.dim(1), x.dim(2));
    LATHE_CHECK(type == "attention" || type == "transformer", "no layer of type {}", type);
    AttentionOptions o{.heads = layer_integer(s, "heads"), .causal = layer_flag(s, "causal")};
    if (takes_tokens(c_.layer_list) && !o.causal)
      fail("expected causal = true: a token predicts the next one, which it must not see");
    if (type == "transformer") {
      o.dropout = layer_number(s, "dropout");
      return block(s, x, o);
    }
    o.kv_heads = layer_integer(s, "kv_heads");
    o.rotary_base = layer_flag(s, "rotary") ? 10000 : 0;
    o.bias = layer_flag(s, "bias");
    return self_attention(net_, name_, x, o);
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
  const bool tokens = takes_tokens(c.layer_list);
  const int64_t rows = tokens ? x.dim(0) * x.dim(1) : x.dim(0);
  Value y = builder.build(x);
  builder.last();
  const Shape wanted = tokens ? Shape{x.dim(0), x.dim(1), c.classes} : Shape{x.dim(0), c.classes};
  if (y.shape() != wanted)
    builder.fail(fmt::format("expected {} ({}) as the output of the last layer, got {}", shape_text(wanted),
                             tokens ? "a number for each token" : "a number for each class", shape_text(y.shape())));
  return reshape(y, {rows, c.classes});
}

}  // namespace lathe
