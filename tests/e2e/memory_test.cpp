// No allocation after step 0, and the certificate holds to the byte.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <nlohmann/json.hpp>

#include "backend/backend.h"
#include "loop/trainer.h"
#include "process.h"

namespace {

std::atomic<int64_t> g_allocations{0};
std::atomic<bool> g_counting{false};

void* counted(size_t size, size_t alignment) {
  if (g_counting.load(std::memory_order_relaxed)) g_allocations.fetch_add(1);
  void* p = alignment > alignof(std::max_align_t)
                ? std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment)
                : std::malloc(size);
  if (!p) throw std::bad_alloc();
  return p;
}

}  // namespace

// Every allocation of C++ code in this program, on any thread.
void* operator new(size_t size) { return counted(size, 1); }
void* operator new[](size_t size) { return counted(size, 1); }
void* operator new(size_t size, std::align_val_t a) { return counted(size, static_cast<size_t>(a)); }
void* operator new[](size_t size, std::align_val_t a) { return counted(size, static_cast<size_t>(a)); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return counted(size, 1); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return counted(size, 1); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { std::free(p); }

namespace lathe {
namespace {

// Steps with a log line each, and an evaluation at the end of each epoch. What may allocate: checkpoints, and steps
// that are refused. `driver` marks devices whose driver uses the C heap as it likes and compiles a kernel when it runs
// first: there the count starts when every Program has run.
void expect_no_allocation(const std::string& recipe, const Sets& sets, bool driver = false) {
  Sets all{"train.steps=30", "train.log_every=1", "checkpoint.every_epochs=0", "data.test_samples=40"};
  all.insert(all.end(), sets.begin(), sets.end());
  const test::TempDir dir;
  TrainOptions o;
  o.out = dir.path("run");
  int64_t counted_steps = 0;
  const int64_t first = driver ? 17 : 2;
  size_t heap_before = 0, heap_after = 0;
  o.on_step = [&](int64_t step, Executor&) {
    if (step == first) {
      heap_before = mallinfo2().uordblks;
      g_allocations = 0;
      g_counting = true;
    }
    if (step == 29) {
      g_counting = false;
      heap_after = mallinfo2().uordblks;
    }
    if (step > first && step <= 29) ++counted_steps;
  };
  const TrainResult r = train(load_recipe(recipe, all), o);
  EXPECT_EQ(counted_steps, 29 - first);
  EXPECT_EQ(g_allocations.load(), 0) << recipe;
  if (!driver) {
    EXPECT_LE(heap_after, heap_before + 4096) << recipe;  // malloc from anywhere, the C library included
  }
  EXPECT_EQ(r.memory.total(), r.allocated);
  const std::string log = test::read_file(o.out + "/metrics.jsonl");
  EXPECT_GE(std::count(log.begin(), log.end(), '\n'), 30 + 3) << "a line each step, and evaluations";
}

TEST(Memory, TheCounterCounts) {
  g_allocations = 0;
  g_counting = true;
  std::vector<int>(100).swap(*std::make_unique<std::vector<int>>());
  g_counting = false;
  EXPECT_GE(g_allocations.load(), 2);
}

TEST(Memory, NoAllocationAfterStep0) {
  expect_no_allocation("mlp", {"data.source=synthetic", "data.train_samples=512", "train.eval_batch=16"});
  expect_no_allocation("fashion_mnist", {"data.source=synthetic", "data.train_samples=100", "train.batch_size=16",
                                         "model.dropout=0.1", "model.channels=[8,8]", "train.eval_batch=16"});
  // Two sets, with a tail each.
  expect_no_allocation("mlp",
                       {"data.source=synthetic", "data.train_samples=100", "train.batch_size=16", "model.hidden=[32]",
                        "train.eval_batch=16", "data.validation=0.3", "data.test_samples=21", "train.patience=100"});
  expect_no_allocation("gpt_tiny", {"data.path=", "model.layers=1", "model.width=32", "model.sequence=16",
                                    "train.batch_size=4", "data.train_samples=16"});
  expect_no_allocation("mlp", {"data.source=synthetic", "data.train_samples=256", "train.batch_size=16",
                               "train.accumulate=3", "model.hidden=[32]"});
}

TEST(OpenClMemory, NoAllocationAfterStep0) {
  if (find_backend("opencl").devices().empty()) GTEST_SKIP() << find_backend("opencl").unavailable_reason();
  expect_no_allocation("mlp",
                       {"device=opencl", "data.source=synthetic", "data.train_samples=128", "train.batch_size=16",
                        "model.hidden=[32]", "train.eval_batch=16"},
                       true);
}

TEST(Memory, TheDataSetAndTheLoaderAreCounted) {
  const auto memory = [](const Sets& sets) {
    const Recipe r = load_recipe("fashion_mnist", sets);
    return compile(r, describe_data(r)).memory();
  };
  const RunMemory files = memory({});
  EXPECT_EQ(files.data, 16 + 60000 * 784 + 8 + 60000 + 16 + 10000 * 784 + 8 + 10000);
  EXPECT_EQ(files.loader, 784) << "one thread that flips";
  const RunMemory made = memory({"data.source=synthetic", "data.threads=3", "data.augment.flip=false"});
  EXPECT_EQ(made.data, 2 * 10 * 784) << "a prototype of each class, for training and test";
  EXPECT_EQ(made.loader, 0) << "nothing is augmented";
  EXPECT_EQ(memory({"data.source=synthetic", "data.threads=3", "data.validation=0.5"}).data, 2 * 10 * 784 + 4096 * 8)
      << "a part that is held out costs the numbers of the samples";
  EXPECT_EQ(memory({"data.source=synthetic", "data.threads=3"}).loader, 3 * 784);
}

TEST(Memory, OutsideIsEstimatedAndMeasured) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer's shadow memory is resident too";
#endif
  const test::TempDir dir;
  const std::vector<std::string> sets{"--json", "--set", "data.source=synthetic", "--set", "train.steps=30"};
  std::vector<std::string> plan{"plan", "mlp"}, train{"train", "mlp", "--out", dir.path("run")};
  plan.insert(plan.end(), sets.begin(), sets.end());
  train.insert(train.end(), sets.begin(), sets.end());
  const auto p = test::run_lathe(plan), t = test::run_lathe(train);
  ASSERT_EQ(p.code, 0) << p.err;
  ASSERT_EQ(t.code, 0) << t.err;
  const double planned = nlohmann::json::parse(p.out)["run"]["outside"];
  const auto j = nlohmann::json::parse(t.out);
  const double estimated = j["outside_estimated"], measured = j["outside_measured"];
  EXPECT_GT(measured, 1e6);
  // An estimate: of the right size, before and after the start.
  for (const double e : {planned, estimated}) {
    EXPECT_GT(e, 0.5 * measured);
    EXPECT_LT(e, 2.0 * measured);
  }
  EXPECT_GE(j["resident_bytes"].get<double>(), measured);
}

TEST(Memory, PlansAreWithinFivePercentOfTheLowerBound) {
  for (const BuiltinRecipe& b : builtin_recipes())
    for (const char* update : {"after_all", "auto"}) {
      const Recipe r = load_recipe(std::string(b.name), {std::string("train.update=") + update});
      DataSpec data;
      try {
        data = describe_data(r);
      } catch (const UserError& e) {
        ASSERT_EQ(e.exit_code(), Exit::missing_input) << e.what();  // fetched data that is not here
        continue;
      }
      const Compiled c = compile(r, data);
      int64_t most = 0;
      for (const Program& p : c.set.programs) most = std::max(most, p.memory.scratch);
      for (const Program& p : c.set.programs) {
        // Gaps in a Program that does not hold the peak cost nothing: it may have some more.
        const double limit = p.memory.scratch == most ? 1.05 : 1.1;
        EXPECT_GE(p.memory.scratch, p.memory.lower_bound) << b.name << " " << p.name;
        EXPECT_LE(static_cast<double>(p.memory.scratch), limit * static_cast<double>(p.memory.lower_bound))
            << b.name << " " << p.name;
      }
    }
}

TEST(Memory, BudgetCoversAllThatIsAllocated) {
  const Recipe r = load_recipe("mlp", {"data.source=synthetic"});
  const RunMemory m = compile(r, describe_data(r)).memory();
  ASSERT_LT(m.arena, m.total());
  const auto with_budget = [&](int64_t bytes) {
    Recipe limited = r;
    limited.memory.budget.bytes = bytes;
    return compile(limited, describe_data(limited)).memory().total();
  };
  EXPECT_EQ(with_budget(m.total()), m.total());
  EXPECT_LT(with_budget(m.total() - 1), m.total()) << "evaluation gives way";
  EXPECT_THROW(with_budget(m.arena), Error);
}

TEST(Memory, BudgetIsCheckedBeforeAnythingIsAllocated) {
  const Recipe r = load_recipe("mlp", {"data.source=synthetic", "memory.budget=1MiB"});
  try {
    compile(r, describe_data(r));
    ADD_FAILURE() << "expected a refusal";
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), Exit::os_error);
    EXPECT_NE(std::string(e.what()).find("batch"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace lathe
