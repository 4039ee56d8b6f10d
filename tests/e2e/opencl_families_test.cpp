// The tiny twin of each model family trains on an OpenCL device as on the cpu, and repeats its bits.
#include <gtest/gtest.h>

#include <cmath>

#include "backend/backend.h"
#include "process.h"
#include "train/compile.h"
#include "train/selftest.h"

namespace lathe::test {
namespace {

struct Family {
  const char* name;
  const char* base;
  std::vector<std::string> sets;
};

class FamiliesOnOpenCl : public ::testing::TestWithParam<Family> {};

TEST_P(FamiliesOnOpenCl, TrainLikeOnTheCpu) {
  const Backend& opencl = find_backend("opencl");
  if (opencl.devices().empty()) GTEST_SKIP() << opencl.unavailable_reason();
  const Recipe tiny = tiny_twin(load_recipe(GetParam().base, GetParam().sets));
  const TrainingCheck check = check_training(tiny, opencl, {}, 3);
  EXPECT_TRUE(check.ok()) << to_text(check);
}

INSTANTIATE_TEST_SUITE_P(All, FamiliesOnOpenCl,
                         ::testing::Values(Family{"resnet", "mlp", {"model.family=resnet"}},
                                           Family{"mobilenetv2", "mlp", {"model.family=mobilenetv2"}},
                                           Family{"vit", "mlp", {"model.family=vit"}},
                                           Family{"lstm", "mlp", {"model.family=lstm", "model.layers=2"}},
                                           Family{"llama",
                                                  "gpt_tiny",
                                                  {"model.norm=rms", "model.positions=rotary", "model.mlp=swiglu",
                                                   "model.kv_heads=2", "model.bias=false", "model.tied=false"}}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lathe::test
