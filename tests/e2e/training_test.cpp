// Training through the library: accumulation, refused steps, schedules of samples, update modes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "data/loader.h"
#include "loop/evaluation.h"
#include "loop/trainer.h"
#include "passes/techniques/accumulate.h"
#include "process.h"
#include "session/state.h"

namespace lathe {
namespace {

using test::TempDir;

Recipe tiny(const std::string& name, const Sets& sets) {
  Sets all{"data.source=synthetic", "data.train_samples=64", "data.test_samples=16",
           "train.batch_size=16",   "train.eval_every=0",    "checkpoint.every_epochs=0"};
  all.insert(all.end(), sets.begin(), sets.end());
  return load_recipe(name, all);
}

std::vector<float> floats(Executor& e, const std::string& name) {
  for (const Port& p : e.set().state)
    if (p.name == name) {
      std::vector<float> v(static_cast<size_t>(p.type.numel()));
      e.read_state(name, std::as_writable_bytes(std::span(v)));
      return v;
    }
  ADD_FAILURE() << "no state " << name;
  return {};
}

std::map<std::string, std::vector<float>> weights(Executor& e, const Compiled& c) {
  std::map<std::string, std::vector<float>> out;
  for (const StateSpec& s : c.state)
    if (s.type.dtype == DType::f32 && s.kind != InputKind::gradient) out[s.name] = floats(e, s.name);
  return out;
}

// Weights after the last step; losses of all steps.
std::map<std::string, std::vector<float>> train_weights(const Recipe& r, std::vector<double>* losses = nullptr) {
  const TempDir dir;
  const Compiled c = compile(r, describe_data(r));
  std::map<std::string, std::vector<float>> out;
  TrainOptions o;
  o.out = dir.path("run");
  o.on_step = [&](int64_t, Executor& e) {
    if (losses) losses->push_back(e.metric("loss"));
    out = weights(e, c);
  };
  train(r, o);
  return out;
}

double relative(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::fabs(double{a[i]} - double{b[i]}));
    size = std::max(size, std::fabs(double{b[i]}));
  }
  return size > 0 ? difference / size : difference;
}

// The gradients that `accumulate` micro-batches leave in the accumulators, against one large batch.
TEST(Training, AccumulatedGradientsEqualTheLargeBatch) {
  const auto gradients = [](int64_t batch, int64_t accumulate) {
    const Recipe r = tiny("mlp", {"train.batch_size=" + std::to_string(batch),
                                  "train.accumulate=" + std::to_string(accumulate), "train.update=after_all"});
    const Dataset data = open_dataset(r);
    Recipe forced = r;
    forced.passes.get<AccumulateOptions>().batches =
        std::max<int64_t>(2, accumulate);  // so that the accumulate Program exists
    const Compiled c = compile(forced, data.spec);
    Executor e(c.set, find_backend("cpu").open({}), c.executor);
    initialize_state(e, c.state, r.seed);
    data::LoaderConfig l;
    l.batch = batch;
    data::Loader loader(*data.train, l, loader_slots(e, 0, 2, true));
    loader.start(0);
    for (int64_t i = 0; i < 64 / batch; ++i) {
      const data::Batch b = loader.next();
      stage_step_inputs(e, b.slot, r.seed, 0, 0.1, 1.0 / 64);
      e.stage(c.program("accumulate"), b.slot);
      e.run(c.program("accumulate"), b.slot);
      e.synchronize();
      loader.release(b.slot);
    }
    std::map<std::string, std::vector<float>> out;
    for (const StateSpec& s : c.state)
      if (s.kind == InputKind::gradient) out[s.name] = floats(e, s.name);
    return out;
  };
  const auto large = gradients(64, 1), small = gradients(8, 8);
  ASSERT_EQ(large.size(), 6u);
  for (const auto& [name, g] : large) EXPECT_LT(relative(small.at(name), g), 1e-5) << name;
}

TEST(Training, AccumulationTrainsLikeTheLargeBatch) {
  const auto large = train_weights(tiny("mlp", {"train.batch_size=32", "train.steps=4"}));
  const auto small = train_weights(tiny("mlp", {"train.batch_size=8", "train.accumulate=4", "train.steps=4"}));
  for (const auto& [name, w] : large) EXPECT_LT(relative(small.at(name), w), 1e-4) << name;
}

TEST(Training, UpdateModesAgree) {
  for (const char* optimizer : {"sgd", "adam", "adamw"}) {
    const std::string name = std::string("optimizer.name=") + optimizer, lr = "optimizer.lr=0.01";
    const auto after = train_weights(
        tiny("fashion_mnist", {"train.update=after_all", "train.steps=6", name, lr, "model.channels=[4,4]"}));
    const auto at = train_weights(
        tiny("fashion_mnist", {"train.update=at_gradient", "train.steps=6", name, lr, "model.channels=[4,4]"}));
    for (const auto& [n, w] : after) EXPECT_LT(relative(at.at(n), w), 1e-5) << optimizer << " " << n;
  }
}

// Products in 16 bits: near the weights of f32, and not the same; twice the same bits.
TEST(Training, SixteenBitProductsTrainLikeF32) {
  const auto run = [](const char* name, const char* precision, std::vector<double>* losses) {
    return train_weights(tiny(name, {"train.steps=40", std::string("train.precision=") + precision}), losses);
  };
  for (const char* name : {"mlp", "fashion_mnist"}) {
    std::vector<double> exact;
    const auto want = run(name, "f32", &exact);
    ASSERT_LT(exact.back(), 0.7 * exact.front()) << name << " learns nothing in so few steps";
    for (const char* precision : {"bf16", "f16"}) {
      SCOPED_TRACE(std::string(name) + " in " + precision);
      std::vector<double> losses, again;
      const auto got = run(name, precision, &losses);
      EXPECT_NEAR(losses.front(), exact.front(), 0.02 * exact.front());
      EXPECT_NEAR(losses.back(), exact.back(), 0.05 * exact.front());
      double most = 0;
      for (const auto& [n, w] : want) most = std::max(most, relative(got.at(n), w));
      EXPECT_GT(most, 1e-6) << "computed in f32";
      if (name != std::string("mlp")) continue;
      const auto repeated = run(name, precision, &again);
      for (const auto& [n, w] : got)
        EXPECT_EQ(std::memcmp(w.data(), repeated.at(n).data(), w.size() * sizeof(float)), 0) << n;
    }
  }
}

// Gradients that f16 cannot hold survive by the loss scale, and an overflow leaves the weights as they were.
TEST(Training, LossScaleKeepsSmallGradients) {
  const auto norm_of = [](const char* precision, const char* scale, const char* on_nan) {
    Recipe r = tiny("mlp", {"train.steps=1", std::string("train.precision=") + precision,
                            std::string("train.on_nan=") + on_nan, std::string("train.loss_scale=") + scale});
    double norm = 0;
    const TempDir dir;
    TrainOptions o;
    o.out = dir.path("run");
    o.on_step = [&](int64_t, Executor& e) { norm = e.metric("accepted") != 0 ? e.metric("grad_norm") : -1; };
    train(r, o);
    return norm;
  };
  const double small = norm_of("f16", "1", "stop"), scaled = norm_of("f16", "1024", "stop");
  EXPECT_GT(scaled, 0);
  EXPECT_NEAR(small, scaled, 0.05 * scaled);
  EXPECT_EQ(norm_of("f16", "16777216", "skip"), -1) << "the largest scale overflows";
}

// The scale is state of the device: an overflow halves it and leaves all else as it was, Adam's count included; finite
// steps in a row double it.
TEST(Training, LossScaleFindsItsPlace) {
  for (const char* device : {"cpu", "ref"})
    for (const char* accumulate : {"1", "2"}) {
      constexpr int kGrowth = 3, kSteps = 24;
      Recipe r = tiny("mlp", {"train.steps=24", "train.precision=f16", "train.loss_scale=16777216",
                              "train.loss_scale_growth=3", "optimizer.name=adam", "model.hidden=[16]",
                              std::string("train.accumulate=") + accumulate, std::string("device.name=") + device});
      const TempDir dir;
      TrainOptions o;
      o.out = dir.path("run");
      double expected = 16777216;
      int streak = 0, accepted = 0, halved = 0, doubled = 0;
      std::vector<float> weights;
      o.on_step = [&](int64_t step, Executor& e) {
        EXPECT_EQ(e.metric("gradient_scale"), expected) << device << " step " << step;
        const bool ok = e.metric("accepted") != 0;
        accepted += ok;
        streak = ok ? streak + 1 : 0;
        if (!ok) {
          expected /= 2;
          ++halved;
        } else if (streak == kGrowth) {
          expected *= 2;
          streak = 0;
          ++doubled;
        }
        const std::vector<float> now = floats(e, "fc1.weight");
        EXPECT_TRUE(weights.empty() || ok || now == weights) << "a refused step changed weights";
        weights = now;
        int32_t count = 0;
        e.read_state("optimizer.step", std::as_writable_bytes(std::span(&count, 1)));
        EXPECT_EQ(count, accepted);
        float kept = 0;
        e.read_state("gradient_scale", std::as_writable_bytes(std::span(&kept, 1)));
        EXPECT_EQ(kept, expected);
      };
      EXPECT_EQ(train(r, o).steps, kSteps);
      EXPECT_GT(halved, 2);
      EXPECT_GT(doubled, 1);
      EXPECT_GT(accepted, kSteps / 3);
    }
}

TEST(Training, AtGradientNeedsLessMemory) {
  const auto scratch = [](const char* mode) {
    const Recipe r = load_recipe("mlp", {"data.source=synthetic", std::string("train.update=") + mode});
    return compile(r, describe_data(r)).set.find("train")->memory.scratch;
  };
  EXPECT_LT(scratch("at_gradient"), scratch("after_all"));
}

// A non-finite step must leave every bit of weights, moments, counts and running statistics as it was.
TEST(Training, NonFiniteStepsChangeNothing) {
  for (const char* optimizer : {"sgd", "adam"}) {
    const TempDir dir;
    Recipe r = tiny("fashion_mnist", {"train.on_nan=skip", "train.nan_patience=3", "train.steps=10",
                                      "model.channels=[4,4]", std::string("optimizer.name=") + optimizer});
    const Compiled c = compile(r, describe_data(r));
    std::map<std::string, std::vector<float>> before;
    int64_t refused = 0;
    TrainOptions o;
    o.out = dir.path("run");
    o.on_step = [&](int64_t step, Executor& e) {
      if (step == 4) {
        auto w = floats(e, "fc2.bias");
        w[0] = std::numeric_limits<float>::quiet_NaN();
        e.write_state("fc2.bias", std::as_bytes(std::span(w)));
        before = weights(e, c);
      } else if (step > 4) {
        ++refused;
        const auto now = weights(e, c);
        for (const auto& [name, w] : before)
          EXPECT_EQ(std::memcmp(w.data(), now.at(name).data(), w.size() * sizeof(float)), 0)
              << optimizer << " step " << step << " " << name;
      }
    };
    try {
      train(r, o);
      ADD_FAILURE() << "expected the run to stop";
    } catch (const UserError& e) {
      EXPECT_EQ(e.exit_code(), Exit::bad_data);
      EXPECT_NE(std::string(e.what()).find("3 refused in a row"), std::string::npos) << e.what();
    }
    EXPECT_EQ(refused, 2);
    // No checkpoint comes from a refused step.
    EXPECT_EQ(test::newest_checkpoint(o.out), "");
  }
}

TEST(Training, EachSampleExactlyOncePerEpoch) {
  for (const auto& [samples, batch, accumulate] :
       {std::array<int64_t, 3>{64, 16, 1}, {50, 16, 1}, {50, 7, 3}, {33, 32, 2}, {5, 5, 4}}) {
    Recipe r = load_recipe("mlp", {"data.source=synthetic", "data.train_samples=" + std::to_string(samples),
                                   "train.batch_size=" + std::to_string(batch),
                                   "train.accumulate=" + std::to_string(accumulate), "train.epochs=2"});
    const TrainingSteps s = training_steps(r, samples);
    int64_t seen = 0, batches = 0;
    for (int64_t step = 0; step < s.steps_per_epoch; ++step) {
      EXPECT_EQ(s.first_batch(step), batches);
      batches += s.batches_in(step);
      seen += s.samples_in(step);
    }
    EXPECT_EQ(seen, samples);
    EXPECT_EQ(batches, s.batches);
    EXPECT_EQ(s.total_steps, 2 * s.steps_per_epoch);
  }
}

// The staged sample indices of one epoch, as the Programs see them.
TEST(Training, StagedIndicesCoverTheEpoch) {
  const TempDir dir;
  Recipe r = tiny("mlp", {"data.train_samples=50", "train.epochs=1"});
  const Dataset data = open_dataset(r);
  const Compiled c = compile(r, data.spec);
  EXPECT_TRUE(c.has("train_tail"));
  Executor e(c.set, find_backend("cpu").open({}), c.executor);
  data::LoaderConfig l;
  l.batch = 16;
  data::Loader loader(*data.train, l, loader_slots(e, 0, 2, true));
  loader.start(0);
  std::multiset<int64_t> indices;
  for (int i = 0; i < 4; ++i) {
    const data::Batch b = loader.next();
    const auto* at = reinterpret_cast<const int64_t*>(e.staging(b.slot, "index"));
    indices.insert(at, at + b.count);
    loader.release(b.slot);
  }
  EXPECT_EQ(indices.size(), 50u);
  EXPECT_EQ(std::set<int64_t>(indices.begin(), indices.end()).size(), 50u);
}

// Evaluation inside of a run sees what evaluation of its checkpoint sees, also with batches larger than training's.
TEST(Training, EvaluationInARunEqualsEvaluationOfItsCheckpoint) {
  for (const char* recipe : {"mlp", "fashion_mnist"}) {
    const TempDir dir;
    TrainOptions o;
    o.out = dir.path("run");
    Sets sets{"train.steps=12", "data.test_samples=500", "train.eval_batch=400"};
    if (recipe == std::string("fashion_mnist")) sets.push_back("model.channels=[4,4]");
    const TrainResult r = train(tiny(recipe, sets), o);
    const EvalResult e = evaluate(o.out, {});
    EXPECT_EQ(e.loss, r.eval_loss) << recipe;
    EXPECT_EQ(e.accuracy, r.accuracy) << recipe;
    EXPECT_EQ(evaluate(o.out, {.sets = {"train.eval_batch=7"}}).accuracy, r.accuracy) << recipe;
  }
}

TEST(Training, ClippingBoundsTheStep) {
  const auto w0 =
      train_weights(tiny("mlp", {"train.steps=1", "optimizer.lr=1", "optimizer.momentum=0", "train.clip_norm=0.001"}));
  const Recipe r = tiny("mlp", {"train.steps=1"});
  const Compiled c = compile(r, describe_data(r));
  Executor e(c.set, find_backend("cpu").open({}), c.executor);
  initialize_state(e, c.state, r.seed);
  double moved = 0;
  for (const auto& [name, w] : weights(e, c))
    if (w0.count(name))
      for (size_t i = 0; i < w.size(); ++i) moved += std::pow(double{w0.at(name)[i]} - double{w[i]}, 2);
  EXPECT_GT(std::sqrt(moved), 0.0005);
  EXPECT_LT(std::sqrt(moved), 0.00101);
}

TEST(Training, LossFalls) {
  for (const auto& [recipe, extra] :
       {std::pair<std::string, Sets>{"mlp", {}},
        {"mlp",
         {"model.family=mixer", "model.patch=7", "model.width=32", "optimizer.name=adamw", "optimizer.lr=0.003"}},
        {"fashion_mnist", {"model.channels=[8,8]", "schedule.warmup_steps=5"}}}) {
    const TempDir dir;
    Sets sets{"train.steps=60"};
    sets.insert(sets.end(), extra.begin(), extra.end());
    TrainOptions o;
    o.out = dir.path("run");
    const TrainResult result = train(tiny(recipe, sets), o);
    EXPECT_LT(result.loss, 0.5) << recipe;
    EXPECT_GT(result.accuracy, 0.8) << recipe;
    EXPECT_EQ(result.memory.total(), result.allocated);
  }
}

}  // namespace
}  // namespace lathe
