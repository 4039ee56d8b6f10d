#include <algorithm>

#include "base/error.h"
#include "recipe/recipe.h"
#include "recipe/recipe_keys.h"

namespace lathe {
namespace {

void at_most(int64_t& value, int64_t limit) { value = std::min(value, limit); }

void at_most(Ints& values, size_t items, int64_t limit) {
  if (values.size() > items) values.resize(items);
  for (int64_t& value : values) at_most(value, limit);
}

void resize_to_channels(Doubles& values, int64_t channels) {
  if (values.size() > 1) values.resize(static_cast<size_t>(channels), values.front());
}

bool fits(const Recipe& r) {
  try {
    validate(r);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

// A list of layers with few channels on a small image, where it still fits together so; else on a larger one, else as
// it is.
void shrink_layers(Recipe& r) {
  const std::vector<LayerSpec> whole = r.model.layers.list;
  std::vector<LayerSpec> narrow = whole;
  for (LayerSpec& layer : narrow)
    for (auto& [key, value] : layer.keys)
      if (auto* n = std::get_if<int64_t>(&value); n && (key == "out" || key == "width" || key == "feed_forward"))
        at_most(*n, 8);
  for (const auto& list : {narrow, whole})
    for (const int64_t side : {8, 16, 28, 32, 64, 128, 224, 256}) {
      r.model.layers.list = list;
      if (!takes_tokens(r)) r.data.shape[0] = r.data.shape[1] = side;
      if (fits(r)) return;
    }
}

}  // namespace

Recipe tiny_twin(const Recipe& recipe) {
  Recipe r = recipe;
  r.name = recipe.name.substr(0, 90) + "_tiny";

  r.model.tokens = false;  // there are no generated tokens with a label per sample
  const bool text = takes_tokens(r);
  Ints shape = r.data.source == "synthetic" || r.data.source == "png" ? r.data.shape : Ints{28, 28, 1};
  if ((r.data.source == "idx" || r.data.source == "npy") && r.data.normalize.mean.size() > 1) {
    shape[2] = static_cast<int64_t>(r.data.normalize.mean.size());
  }
  at_most(r.model.channels, 2, 4);
  // Batch norms of nets that halve the image often need more than one pixel at the end.
  const bool deep = r.model.family == "resnet" || r.model.family == "mobilenetv2" || r.model.family == "efficientnet";
  for (size_t axis : {0, 1}) at_most(shape[axis], deep ? 16 : 8);
  at_most(shape[2], 3);
  at_most(r.model.patch, 4);
  if (r.model.family == "vit") shape[0] = shape[1] = 2 * r.model.patch;
  r.data.source = text ? "text" : "synthetic";
  r.data.path.clear();
  r.data.test_path.clear();
  r.data.shape = shape;
  at_most(r.data.classes, 4);
  r.data.train_samples = 16;
  r.data.test_samples = 8;
  if (r.data.validation > 0) r.data.validation = std::clamp(r.data.validation, 0.25, 0.5);
  at_most(r.data.sequence, 8);
  r.data.threads = 1;
  at_most(r.data.prefetch, 2);
  const int64_t side = std::min(shape[0], shape[1]);
  at_most(r.data.augment.crop, std::min<int64_t>(1, side - 1));
  at_most(r.data.augment.cutout, std::min<int64_t>(2, side));
  resize_to_channels(r.data.normalize.mean, shape[2]);
  resize_to_channels(r.data.normalize.std, shape[2]);

  at_most(r.model.hidden, 2, 8);
  at_most(r.model.dense, 8);
  at_most(r.model.layers.count, 2);
  at_most(r.model.heads, 2);
  at_most(r.model.kv_heads, 1);
  r.model.width = 4 * r.model.heads;
  at_most(r.model.feed_forward, 16);
  r.model.scale = std::min(r.model.scale, 1.0 / 16);
  at_most(r.model.vocab, 128);  // generated text is ASCII
  r.model.vocab = std::max<int64_t>(r.model.vocab, text ? 128 : 2);
  at_most(r.model.sequence, 8);

  at_most(r.schedule.warmup_steps, 1);
  at_most(r.optimizer.lookahead, 2);
  r.optimizer.groups.clear();  // they name layers of the large one
  at_most(r.train.swa_from, 1);
  r.train.epochs = 0;
  r.train.steps = 4;
  at_most(r.train.batch_size, 4);
  at_most(r.train.accumulate, 2);
  r.train.log_every = 1;
  at_most(r.train.eval_batch, 4);
  at_most(r.checkpoint.every_steps, 2);
  r.memory.budget = {};
  if (r.model.family == "layers") shrink_layers(r);
  reset_unused(r);
  return r;
}

}  // namespace lathe
