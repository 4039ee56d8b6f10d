// Trains a net on arrays in memory: which of three arms of a spiral a point lies on.
#include <lathe/lathe.h>

#include <cmath>
#include <cstdio>
#include <random>

namespace {

struct Points {
  std::vector<float> xy;        // two numbers per point
  std::vector<int32_t> labels;  // its arm
};

Points spiral(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(0, 1);
  std::normal_distribution<float> noise(0, 0.08f);
  Points p;
  for (size_t i = 0; i < count; ++i) {
    const auto arm = static_cast<int32_t>(i % 3);
    const float radius = 0.1f + 0.9f * uniform(random);
    const float angle = 4 * radius + 2.0944f * static_cast<float>(arm) + noise(random);
    p.xy.insert(p.xy.end(), {radius * std::cos(angle), radius * std::sin(angle)});
    p.labels.push_back(arm);
  }
  return p;
}

// All but the data; the keys are those of `lathe recipes --keys`.
constexpr const char* kRecipe = R"(
  model = { family = "mlp", hidden = [64, 64] }
  optimizer = { name = "adam", lr = 0.01 }
  train = { epochs = 25, batch_size = 50, eval_every = 5 }
)";

}  // namespace

int main(int argc, char** argv) try {
  const Points train = spiral(1500, 1), test = spiral(600, 2);
  const lathe::Recipe recipe = lathe::parse_recipe(kRecipe, "spiral.toml");
  lathe::TrainOptions options;
  options.out = argc > 1 ? argv[1] : "spiral";  // checkpoints and metrics go there
  options.train_data = lathe::data::array_source(train.xy, {2}, train.labels, 3);
  options.eval_data = lathe::data::array_source(test.xy, {2}, test.labels, 3);
  const lathe::TrainResult result = lathe::train(recipe, options);
  std::printf("%lld steps on %s: test accuracy %.1f %%, %lld bytes planned and allocated\n",
              static_cast<long long>(result.steps), result.device.c_str(), 100 * result.accuracy,
              static_cast<long long>(result.allocated));
  return result.accuracy > 0.9 ? 0 : 1;
} catch (const lathe::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return static_cast<int>(e.exit_code());
}
