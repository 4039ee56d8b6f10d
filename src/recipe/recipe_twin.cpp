#include <algorithm>

#include "base/error.h"
#include "nn/families/model.h"
#include "passes/techniques/accumulate.h"
#include "passes/techniques/average.h"
#include "passes/techniques/lookahead.h"
#include "recipe/recipe.h"
#include "recipe/recipe_keys.h"
#include "recipe/sources/source.h"

namespace lathe {
namespace {

void limit(int64_t& value, int64_t most) { value = std::min(value, most); }

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

// The first of the small parameters that fit the image, or else a larger one.
void choose_params(Recipe& r, const std::vector<ParamSet>& candidates) {
  Ints* shape = r.data.source.params.find<Ints>("shape");  // tokens have none
  const Ints image = shape ? *shape : Ints{};
  for (const ParamSet& params : candidates)
    for (const int64_t side : {int64_t{0}, int64_t{8}, int64_t{16}, int64_t{28}, int64_t{32}, int64_t{64}, int64_t{128},
                               int64_t{224}, int64_t{256}}) {
      r.model.params = params;
      if (shape) *shape = image;
      if (shape && side > 0) (*shape)[0] = (*shape)[1] = side;
      if (fits(r)) return;
    }
}

}  // namespace

Recipe tiny_twin(const Recipe& recipe) {
  Recipe r = recipe;
  r.name = recipe.name.substr(0, 90) + "_tiny";

  const SourceFacts& source = facts_of(r);
  const Ints* given = r.data.source.params.find<Ints>("shape");
  Ints shape = given && !source.own ? *given : Ints{28, 28, 1};
  if (source.shape[0] > 0) {
    shape.assign(source.shape.begin(), source.shape.end());
  } else if (source.images && !given && r.data.normalize.mean.size() > 1) {  // only the files tell it
    shape[2] = static_cast<int64_t>(r.data.normalize.mean.size());
  }
  const ModelFamily& family = find_family(r.model.family);
  for (size_t axis : {0, 1}) limit(shape[axis], family.info.test_side);
  limit(shape[2], 3);
  std::vector<ParamSet> params{r.model.params};
  if (family.shrink) params = family.shrink(r.model.params, shape);
  r.model.params = params[0];
  SourceSpec made = generated_source(takes_tokens(r));
  for (const Field& f : made.params.schema().fields) copy_value(r.data.source.params, f.name, made.params);
  r.data.source = std::move(made);
  r.data.path.clear();
  if (Ints* size = r.data.source.params.find<Ints>("shape")) *size = shape;
  limit(r.data.classes, 4);
  r.data.train_samples = 16;
  r.data.test_samples = 8;
  if (r.data.validation > 0) r.data.validation = std::clamp(r.data.validation, 0.25, 0.5);
  if (auto* tokens = r.data.source.params.find<int64_t>("sequence")) limit(*tokens, 8);
  r.data.threads = 1;
  limit(r.data.prefetch, 2);
  const int64_t side = std::min(shape[0], shape[1]);
  limit(r.data.augment.crop, std::min<int64_t>(1, side - 1));
  limit(r.data.augment.cutout, std::min<int64_t>(2, side));
  resize_to_channels(r.data.normalize.mean, shape[2]);
  resize_to_channels(r.data.normalize.std, shape[2]);

  limit(r.schedule.warmup_steps, 1);
  limit(r.passes.get<LookaheadOptions>().every, 2);
  r.optimizer.groups.clear();  // they name layers of the large one
  limit(r.passes.get<AverageOptions>().swa_from, 1);
  r.train.epochs = 0;
  r.train.steps = 4;
  limit(r.train.batch_size, 4);
  limit(r.passes.get<AccumulateOptions>().batches, 2);
  r.train.log_every = 1;
  limit(r.train.eval_batch, 4);
  limit(r.checkpoint.every_steps, 2);
  r.memory.budget = {};
  choose_params(r, params);
  reset_unused(r);
  return r;
}

}  // namespace lathe
