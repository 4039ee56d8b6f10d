// Tiny twins of the recipes on several ranks: as near to one rank as sums in another order bring one rank to itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "device_training.h"
#include "io/safetensors.h"
#include "loop/trainer.h"
#include "passes/partition/blocks.h"
#include "process.h"

namespace lathe::ranks_band_test {
namespace {

using test::TempDir;

Recipe twin_of(std::string_view name, const Sets& sets = {}) {
  const auto all = builtin_recipes();
  const auto it = std::ranges::find(all, name, &BuiltinRecipe::name);
  Recipe r = tiny_twin(parse_recipe(it->text, std::string(name), sets));
  r.device = {.name = "cpu", .threads = 1};
  r.train.log_every = 1;
  return r;
}

std::vector<std::string_view> names_of_recipes() {
  std::vector<std::string_view> names;
  for (const BuiltinRecipe& b : builtin_recipes()) names.push_back(b.name);
  return names;
}
// The short version of a test that takes long for all.
std::vector<std::string_view> names_of_some() {
  return test::all_tests() ? names_of_recipes() : std::vector<std::string_view>{"gpt_tiny", "mlp"};
}
std::string name_of(const testing::TestParamInfo<std::string_view>& info) { return std::string(info.param); }

using Weights = std::map<std::string, std::vector<float>>;

struct TwinRun {
  TrainResult result;
  std::vector<double> losses;  // of steps, then of the test set
  Weights weights;             // and buffers
};

Weights read_weights(const std::string& run) {
  io::PosixFs fs;
  const auto file = io::SafetensorsFile::open(fs, test::newest_checkpoint(run) + "/model.safetensors");
  Weights out;
  for (const io::TensorEntry& t : file.tensors()) {
    if (t.dtype != DType::f32) continue;
    std::vector<float>& values = out[t.name];
    values.resize(static_cast<size_t>(t.shape.numel()));
    file.read(t, std::as_writable_bytes(std::span(values)));
  }
  return out;
}

TwinRun train_twin(const Recipe& r, int ranks) {
  const TempDir dir;
  TrainOptions o;
  o.out = dir.path("run");
  TwinRun run{ranks > 1 ? train_on_ranks(r, o, ranks) : train(r, o), {}, {}};
  run.losses = test::losses(o.out);
  if (run.result.test) run.losses.push_back(run.result.test->loss);
  run.weights = read_weights(o.out);
  EXPECT_EQ(run.result.allocated, run.result.memory.total());
  return run;
}

// Sums in another order differ in their last bits, and every step makes that grow: by how much, of one rank, is seen
// with batches in blocks, which add up in other orders. Of each loss, the largest of these distances so far.
std::vector<double> distances_of_one(Recipe r, const TwinRun& one, const std::vector<int64_t>& numbers_of_blocks) {
  std::vector<double> out(one.losses.size());
  for (const int64_t blocks : numbers_of_blocks) {
    r.passes.set(SameBitsOptions{true, blocks});
    const TwinRun other = train_twin(r, 1);
    for (size_t i = 0; i < out.size(); ++i) out[i] = std::max(out[i], std::fabs(other.losses.at(i) - one.losses[i]));
  }
  for (size_t i = 1; i < out.size(); ++i) out[i] = std::max(out[i], out[i - 1]);
  return out;
}

class RanksOfRecipes : public testing::TestWithParam<std::string_view> {};

TEST_P(RanksOfRecipes, TrainAsOneDoes) {
  Recipe r = twin_of(GetParam());
  r.optimizer.lr *= 0.01;
  const TwinRun one = train_twin(r, 1);
  const bool all = test::all_tests();
  const std::vector<double> distances =
      distances_of_one(r, one, all ? std::vector<int64_t>{2, 3, 4, 5} : std::vector<int64_t>{2, 3, 5});
  for (const int ranks : all ? std::vector{2, 3, 4} : std::vector{2, 3}) {
    const TwinRun many = train_twin(r, ranks);
    ASSERT_EQ(many.losses.size(), one.losses.size());
    for (size_t i = 0; i < one.losses.size(); ++i)
      EXPECT_NEAR(many.losses[i], one.losses[i],
                  10 * distances[i] + (i == 0 ? 1e-5 : 1e-2) * std::max(1.0, std::fabs(one.losses[i])))
          << ranks << " ranks, loss " << i;
    EXPECT_EQ(many.result.test.has_value(), one.result.test.has_value());
    if (one.result.test) {
      EXPECT_EQ(many.result.test->samples, one.result.test->samples);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, RanksOfRecipes, testing::ValuesIn(names_of_recipes()), name_of);

// 48 samples in batches of 12, which 2, 3 and 4 ranks divide: enough that a batch norm has something to average.
Recipe larger_twin_of(std::string_view name, const Sets& sets = {}) {
  Recipe r = twin_of(name, sets);
  r.data.train_samples = 48;
  r.train.batch_size = 12;
  return r;
}

constexpr double kBand = 10;        // times the largest distance of one rank
constexpr double kRounding = 2e-6;  // of a loss, where sums in the orders that were tried happen to agree
constexpr double kNear = 1e-2;      // of a loss: beyond that runs have gone elsewhere, and a band says nothing

class RanksBand : public testing::TestWithParam<std::string_view> {};

// Where a rounding decides at a kink (relu, max), or a small variance divides, large steps go elsewhere: on one rank,
// too. The rate is the largest of three at which they do not; where they do at all of them, losses are compared as long
// as one rank is near to itself.
TEST_P(RanksBand, FiftySteps) {
  Recipe r = larger_twin_of(GetParam());
  r.train.steps = 50;
  r.checkpoint.every_steps = 0;
  TwinRun one;
  std::vector<double> distances;
  size_t near = 0;  // losses of which one rank is near to itself
  double share = 1;
  const double rate = r.optimizer.lr;
  const auto size_of_loss = [&](size_t i) { return std::max(1.0, std::fabs(one.losses[i])); };
  for (;; share /= 10) {
    r.optimizer.lr = share * rate;
    one = train_twin(r, 1);
    ASSERT_GE(one.losses.size(), 50u);
    distances = distances_of_one(r, one, {2, 3, 4, 5, 6, 8});
    near = 0;
    while (near < distances.size() && distances[near] <= kNear * size_of_loss(near)) ++near;
    if (near == distances.size() || share < 0.011) break;
  }
  ASSERT_GE(near, 2u) << "one rank is not near to itself after a step";
  double largest = 0, used = 0;  // distance of ranks; part of the band
  for (const int ranks : {2, 3, 4}) {
    const TwinRun many = train_twin(r, ranks);
    ASSERT_EQ(many.losses.size(), one.losses.size());
    for (size_t i = 0; i < near; ++i) {
      const double distance = std::fabs(many.losses[i] - one.losses[i]);
      const double band = kBand * distances[i] + kRounding * size_of_loss(i);
      EXPECT_LE(distance, band) << ranks << " ranks, loss " << i;
      largest = std::max(largest, distance);
      used = std::max(used, distance / band);
    }
  }
  std::printf(
      "%-20s rate x %-4g %zu losses from %.3f to %.3f: one rank within %.1e, ranks within %.1e, %.2f of the band\n",
      std::string(GetParam()).c_str(), share, near, one.losses[0], one.losses[std::min<size_t>(near, 50) - 1],
      distances[near - 1], largest, used);
}

constexpr double kStep = 1e-6;  // of the largest weight

double largest_of(const std::vector<float>& values) {
  float largest = 0;
  for (const float v : values) largest = std::max(largest, std::fabs(v));
  return static_cast<double>(largest);
}

bool is_buffer(const std::string& name) { return name.find("running_") != std::string::npos; }

double largest_weight(const Weights& all) {
  double largest = 0;
  for (const auto& [name, values] : all)
    if (!is_buffer(name)) largest = std::max(largest, largest_of(values));
  return largest;
}

// The largest distance of a weight, relative to the largest weight.
double distance_of(const Weights& a, const Weights& b) {
  double largest = 0;
  for (const auto& [name, values] : a) {
    if (is_buffer(name)) continue;
    const std::vector<float>& others = b.at(name);
    for (size_t i = 0; i < values.size(); ++i)
      largest = std::max(largest, std::fabs(static_cast<double>(others.at(i)) - values[i]));
  }
  return largest / largest_weight(a);
}

// One step of SGD: the first gradients alone. A twin of which one rank is not within kStep of itself has the band.
TEST_P(RanksBand, OneStepOfSgd) {
  Recipe r = larger_twin_of(
      GetParam(), {"optimizer.name=sgd", "optimizer.lr=0.05", "schedule.name=constant", "schedule.warmup_steps=0"});
  r.train.steps = 1;
  const Weights one = train_twin(r, 1).weights;
  Recipe other = r;
  other.optimizer.lr = 1e-12;
  const double moved = distance_of(one, train_twin(other, 1).weights);
  EXPECT_GT(moved, 1e-3);
  double of_one = 0, of_ranks = 0;
  for (const int64_t blocks : {2, 3, 4, 6}) {
    other = r;
    other.passes.set(SameBitsOptions{true, blocks});
    of_one = std::max(of_one, distance_of(one, train_twin(other, 1).weights));
  }
  for (const int ranks : {2, 3, 4}) of_ranks = std::max(of_ranks, distance_of(one, train_twin(r, ranks).weights));
  EXPECT_LE(of_ranks, std::max(kStep, kBand * of_one));
  std::printf("%-20s moved by up to %.1e of the largest weight: one rank within %.1e, ranks within %.1e\n",
              std::string(GetParam()).c_str(), moved, of_one, of_ranks);
}
INSTANTIATE_TEST_SUITE_P(All, RanksBand, testing::ValuesIn(names_of_some()), name_of);

}  // namespace
}  // namespace lathe::ranks_band_test
