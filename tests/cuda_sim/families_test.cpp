// Tiny twins of the model families on the simulated card: losses as on the `cpu` backend, and the same bits again.
#include <gtest/gtest.h>

#include <chrono>

#include "backend/cuda/cuda_backend.h"
#include "recipe/recipe.h"
#include "selftest/selftest.h"
#include "sim.h"

namespace lathe {
namespace {

struct SimFamily {
  const char* base;
  std::vector<std::string> sets;
};

TEST(CudaSimFamilies, TrainLikeTheCpu) {
  setenv("LATHE_CACHE_DIR", LATHE_SIM_CACHE, 0);
  const SimFamily families[] = {
      {"mlp", {"model.family=resnet"}},
      {"mlp", {"model.family=mobilenetv2"}},
      {"mlp", {"model.family=vit"}},
      {"mlp", {"model.family=mixer"}},
      {"mlp", {"model.family=lstm", "model.layers=2"}},
      {"gpt_tiny",
       {"model.norm=rms", "model.positions=rotary", "model.mlp=swiglu", "model.kv_heads=2", "model.bias=false",
        "model.tied=false"}},
  };
  const cuda::Api api = sim::simulator_api();
  const CudaBackend backend(&api);
  for (const SimFamily& f : families) {
    SCOPED_TRACE(f.sets[0]);
    const auto begin = std::chrono::steady_clock::now();
    const TrainingCheck check = check_training(tiny_twin(load_recipe(f.base, f.sets)), backend, {}, 3);
    EXPECT_TRUE(check.ok()) << to_text(check);
    std::printf("%s: %s, %.1f s\n", f.sets[0].c_str(), to_text(check).c_str(),
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  EXPECT_EQ(sim::take_reports(), std::vector<std::string>());
}

}  // namespace
}  // namespace lathe
