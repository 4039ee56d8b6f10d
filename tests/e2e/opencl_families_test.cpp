// The tiny twins of the built-in recipes, and of a family that has none, train on an OpenCL device as on the cpu, and
// repeat their bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "compile/compile.h"
#include "process.h"
#include "selftest/selftest.h"

namespace lathe::test {
namespace {

void train_like_on_the_cpu(const Recipe& r) {
  const Backend& opencl = find_backend("opencl");
  if (opencl.devices().empty()) GTEST_SKIP() << opencl.unavailable_reason();
  const TrainingCheck check = check_training(tiny_twin(r), opencl, {}, 3);
  EXPECT_TRUE(check.ok()) << to_text(check);
}

// Those that opencl_test.cpp trains by the program, and `shakespeare`, whose Programs are gpt_tiny's.
constexpr std::string_view kTrainedElsewhere[] = {"mlp", "fashion_mnist", "gpt_tiny", "shakespeare"};

std::vector<BuiltinRecipe> other_recipes() {
  std::vector<BuiltinRecipe> out;
  for (const BuiltinRecipe& r : selftest_recipes())
    if (std::ranges::find(kTrainedElsewhere, r.name) == std::end(kTrainedElsewhere)) out.push_back(r);
  return out;
}

class RecipesOnOpenCl : public ::testing::TestWithParam<BuiltinRecipe> {};

TEST_P(RecipesOnOpenCl, TrainLikeOnTheCpu) {
  train_like_on_the_cpu(parse_recipe(GetParam().text, std::string(GetParam().name)));
}

INSTANTIATE_TEST_SUITE_P(All, RecipesOnOpenCl, ::testing::ValuesIn(other_recipes()),
                         [](const auto& info) { return std::string(info.param.name); });

struct Family {
  const char* name;
  const char* base;
  std::vector<std::string> sets;
};

class FamiliesOnOpenCl : public ::testing::TestWithParam<Family> {};

TEST_P(FamiliesOnOpenCl, TrainLikeOnTheCpu) { train_like_on_the_cpu(load_recipe(GetParam().base, GetParam().sets)); }

INSTANTIATE_TEST_SUITE_P(All, FamiliesOnOpenCl,
                         ::testing::Values(Family{"mobilenetv2", "fashion_mobilenet", {}},
                                           Family{"efficientnet", "fashion_efficientnet", {}},
                                           Family{"denoising", "clipart_denoise", {}},
                                           Family{"llama",
                                                  "gpt_tiny",
                                                  {"model.norm=rms", "model.positions=rotary", "model.mlp=swiglu",
                                                   "model.kv_heads=2", "model.bias=false", "model.tied=false"}}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lathe::test
