// No allocation after step 0, and the certificate holds to the byte.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "process.h"
#include "train/trainer.h"

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

void expect_no_allocation(const std::string& recipe, const Sets& sets) {
  Sets all{"train.steps=30", "train.log_every=1000", "train.eval_every=0", "checkpoint.every_epochs=0",
           "data.test_samples=16"};
  all.insert(all.end(), sets.begin(), sets.end());
  const test::TempDir dir;
  TrainOptions o;
  o.out = dir.path("run");
  o.quiet = true;
  int64_t counted_steps = 0;
  size_t heap_before = 0, heap_after = 0;
  o.on_step = [&](int64_t step, Executor&) {
    if (step == 2) {
      heap_before = mallinfo2().uordblks;
      g_allocations = 0;
      g_counting = true;
    }
    if (step == 29) {
      g_counting = false;
      heap_after = mallinfo2().uordblks;
    }
    if (step > 2 && step <= 29) ++counted_steps;
  };
  const TrainResult r = train(load_recipe(recipe, all), o);
  EXPECT_EQ(counted_steps, 27);
  EXPECT_EQ(g_allocations.load(), 0) << recipe;
  EXPECT_LE(heap_after, heap_before + 4096) << recipe;  // malloc from anywhere, the C library included
  EXPECT_EQ(r.memory.total(), r.allocated);
}

TEST(Memory, TheCounterCounts) {
  g_allocations = 0;
  g_counting = true;
  std::vector<int>(100).swap(*std::make_unique<std::vector<int>>());
  g_counting = false;
  EXPECT_GE(g_allocations.load(), 2);
}

TEST(Memory, NoAllocationAfterStep0) {
  expect_no_allocation("mlp", {"data.source=synthetic", "data.train_samples=512"});
  expect_no_allocation("fashion_mnist",
                       {"data.source=synthetic", "data.train_samples=100", "train.batch_size=16", "model.dropout=0.1"});
  expect_no_allocation("gpt_tiny", {"model.layers=1", "model.width=32", "model.sequence=16", "train.batch_size=4"});
  expect_no_allocation(
      "mlp", {"data.source=synthetic", "data.train_samples=512", "train.batch_size=16", "train.accumulate=3"});
}

TEST(Memory, PlansAreWithinFivePercentOfTheLowerBound) {
  for (const BuiltinRecipe& b : builtin_recipes())
    for (const char* update : {"after_all", "auto"}) {
      const Recipe r = load_recipe(std::string(b.name), {std::string("train.update=") + update});
      const Compiled c = compile(r, describe_data(r));
      for (const Program& p : c.set.programs) {
        EXPECT_GE(p.memory.scratch, p.memory.lower_bound) << b.name << " " << p.name;
        EXPECT_LE(static_cast<double>(p.memory.scratch), 1.05 * static_cast<double>(p.memory.lower_bound))
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
    compile(limited, describe_data(limited));
  };
  EXPECT_NO_THROW(with_budget(m.total()));
  EXPECT_THROW(with_budget(m.total() - 1), Error);
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
