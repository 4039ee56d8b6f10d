#include "data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/warning.h"
#include "data/order.h"
#include "data/synthetic.h"
#include "data/text.h"

#if defined(__SANITIZE_THREAD__)
#define LATHE_TEST_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LATHE_TEST_TSAN 1
#endif
#endif

namespace {
std::atomic<int64_t> allocations{0};
}

#ifndef LATHE_TEST_TSAN  // its run-time library defines these operators itself
// Counts allocations of the whole test program, so that a test can show that there are none.
void* operator new(size_t size) {
  ++allocations;
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
#endif

namespace lathe::data {
namespace {

using Bytes = std::vector<std::byte>;

// Staging memory as the planner would own it.
struct Staging {
  Staging(const Source& source, int64_t batch, int depth) {
    for (int i = 0; i < depth; ++i) {
      Slot slot;
      for (size_t f = 0; f < source.fields().size(); ++f) {
        memory.push_back(Bytes(static_cast<size_t>(batch * source.fields()[f].type.bytes())));
        slot.fields[f] = memory.back().data();
      }
      indices.push_back(std::vector<int64_t>(static_cast<size_t>(batch)));
      slot.indices = indices.back().data();
      slots.push_back(slot);
    }
  }
  std::vector<Bytes> memory;
  std::vector<std::vector<int64_t>> indices;
  std::vector<Slot> slots;
};

// All that a batch delivers, as one string of bytes.
Bytes content(const Source& source, const Slot& slot, const Batch& batch) {
  Bytes out;
  for (size_t f = 0; f < source.fields().size(); ++f) {
    out.insert(out.end(), slot.fields[f], slot.fields[f] + batch.count * source.fields()[f].type.bytes());
  }
  const auto* p = reinterpret_cast<const std::byte*>(slot.indices);
  out.insert(out.end(), p, p + batch.count * 8);
  return out;
}

std::vector<Bytes> run(const Source& source, LoaderConfig config, int threads, int depth, int64_t epoch, int64_t first,
                       int batches) {
  config.threads = threads;
  Staging staging(source, config.batch, depth);
  Loader loader(source, config, staging.slots);
  loader.start(epoch, first);
  std::vector<Bytes> out;
  for (int i = 0; i < batches; ++i) {
    const Batch& batch = loader.next();
    const int64_t position = epoch * loader.batches_per_epoch() + first + i;
    EXPECT_EQ(batch.epoch, position / loader.batches_per_epoch());
    EXPECT_EQ(batch.index, position % loader.batches_per_epoch());
    out.push_back(content(source, staging.slots[static_cast<size_t>(batch.slot)], batch));
    loader.release(batch.slot);
  }
  return out;
}

std::unique_ptr<Source> images(int64_t count) {
  return make_synthetic({.shape = {12, 12, 1}, .classes = 5, .count = count, .seed = 3, .split = Split::train});
}

const LoaderConfig kConfig{.seed = 11, .batch = 50, .augment = {.flip = true, .crop = 2, .rotate = 10, .cutout = 3}};

TEST(Loader, SameBytesForAnyThreadsAndDepth) {
  const auto source = images(333);
  const auto expected = run(*source, kConfig, 1, 1, 0, 0, 15);  // two epochs of 7 batches and one more
  EXPECT_NE(expected[0], expected[7]);
  for (int threads : {1, 2, 8}) {
    for (int depth = 1; depth <= 4; ++depth) {
      EXPECT_EQ(run(*source, kConfig, threads, depth, 0, 0, 15), expected) << threads << " threads, depth " << depth;
    }
  }
}

TEST(Loader, ResumesInTheMiddle) {
  const auto source = images(333);
  const auto expected = run(*source, kConfig, 2, 2, 0, 0, 15);
  for (int64_t at = 0; at < 15; ++at) {
    const auto resumed = run(*source, kConfig, 2, 3, at / 7, at % 7, static_cast<int>(15 - at));
    EXPECT_TRUE(std::equal(resumed.begin(), resumed.end(), expected.begin() + at)) << at;
  }
  // The position after the last batch of epoch 0 is the first of epoch 1.
  Staging staging(*source, 50, 2);
  Loader loader(*source, kConfig, staging.slots);
  loader.start(0, 7);
  const Batch& batch = loader.next();
  EXPECT_EQ(batch.epoch, 1);
  EXPECT_EQ(batch.index, 0);
  EXPECT_THROW(loader.start(0, 8), UserError);
  EXPECT_THROW(loader.start(-1, 0), UserError);
}

TEST(Loader, StartsAgainWhileRunning) {
  const auto source = images(333);
  LoaderConfig config = kConfig;
  config.threads = 3;
  const auto expected = run(*source, config, 1, 1, 0, 0, 7);
  Staging staging(*source, 50, 3);
  Loader loader(*source, config, staging.slots);
  for (int64_t round = 0; round < 50; ++round) {
    const int64_t first = round % 7;
    loader.start(0, first);
    const Batch& batch = loader.next();
    EXPECT_EQ(content(*source, staging.slots[static_cast<size_t>(batch.slot)], batch),
              expected[static_cast<size_t>(first)]);
  }
}

TEST(Loader, EachSampleOncePerEpoch) {
  const auto source = images(1001);
  for (bool shuffle : {true, false}) {
    LoaderConfig config{.seed = 4, .batch = 64, .shuffle = shuffle, .repeat = false, .augment = {}, .threads = 4};
    Staging staging(*source, config.batch, 3);
    Loader loader(*source, config, staging.slots);
    EXPECT_EQ(loader.batches_per_epoch(), 16);
    for (int64_t epoch : {0, 5}) {
      loader.start(epoch);
      std::vector<int64_t> seen;
      for (int64_t b = 0; b < 16; ++b) {
        const Batch& batch = loader.next();
        EXPECT_EQ(batch.count, b < 15 ? 64 : 41);
        const int64_t* indices = staging.slots[static_cast<size_t>(batch.slot)].indices;
        seen.insert(seen.end(), indices, indices + batch.count);
        // Field and index belong together.
        Bytes image(144), label(4);
        const std::span<std::byte> spans[] = {image, label};
        source->read(indices[3], spans);
        const Slot& slot = staging.slots[static_cast<size_t>(batch.slot)];
        EXPECT_EQ(std::memcmp(slot.fields[0] + 3 * 144, image.data(), 144), 0);
        EXPECT_EQ(std::memcmp(slot.fields[1] + 3 * 4, label.data(), 4), 0);
        loader.release(batch.slot);
      }
      EXPECT_EQ(std::is_sorted(seen.begin(), seen.end()), !shuffle);
      std::sort(seen.begin(), seen.end());
      std::vector<int64_t> all(1001);
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(seen, all);
      EXPECT_THROW(loader.next(), InternalError);  // repeat is off
    }
  }
}

TEST(Loader, LeavesOutIndicesThatNobodyReads) {
  const auto source = images(20);
  LoaderConfig config = kConfig;
  config.batch = 8;
  Staging with(*source, 8, 2), without(*source, 8, 2);
  for (Slot& slot : without.slots) slot.indices = nullptr;
  Loader a(*source, config, with.slots), b(*source, config, without.slots);
  a.start(0);
  b.start(0);
  for (int i = 0; i < 3; ++i) {
    const Batch x = a.next(), y = b.next();
    ASSERT_EQ(x.count, y.count);
    const Slot &p = with.slots[static_cast<size_t>(x.slot)], &q = without.slots[static_cast<size_t>(y.slot)];
    EXPECT_TRUE(std::equal(p.fields[0], p.fields[0] + x.count * 144, q.fields[0]));
    a.release(x.slot);
    b.release(y.slot);
  }
}

TEST(Loader, HoldsSeveralBatchesAndReleasesInAnyOrder) {
  const auto source = images(333);
  const auto expected = run(*source, kConfig, 1, 1, 0, 0, 6);
  Staging staging(*source, 50, 3);
  LoaderConfig config = kConfig;
  config.threads = 2;
  Loader loader(*source, config, staging.slots);
  EXPECT_FALSE(loader.ready());
  loader.start(0);
  std::vector<Batch> held;
  for (size_t i = 0; i < 3; ++i) held.push_back(loader.next());
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(content(*source, staging.slots[static_cast<size_t>(held[i].slot)], held[i]), expected[i]);
  }
  EXPECT_THROW(loader.next(), InternalError);
  EXPECT_FALSE(loader.ready());
  for (size_t i : {2, 0, 1}) loader.release(held[i].slot);
  EXPECT_THROW(loader.release(0), InternalError);
  for (size_t i = 3; i < 6; ++i) {
    for (int tries = 0; tries < 10000 && !loader.ready(); ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(loader.ready());
    const Batch& batch = loader.next();
    EXPECT_EQ(content(*source, staging.slots[static_cast<size_t>(batch.slot)], batch), expected[i]);
  }
}

TEST(Loader, AllocatesNothingAfterConstruction) {
  const auto source = images(333);
  Staging staging(*source, 50, 2);
  LoaderConfig config = kConfig;
  config.threads = 3;
  Loader loader(*source, config, staging.slots);
  loader.start(0);
  loader.release(loader.next().slot);  // by now all threads exist
  const int64_t before = allocations;
  for (int i = 0; i < 20; ++i) loader.release(loader.next().slot);
  EXPECT_EQ(allocations - before, 0);
}

class Broken final : public Source {
 public:
  int64_t size() const override { return 100; }
  std::span<const Field> fields() const override { return {&field_, 1}; }
  void read(int64_t index, SampleSpans) const override {
    if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(60));
    if (index >= 37 && index < 60) throw UserError(fmt::format("sample {} is broken", index));
  }
  int64_t classes() const override { return 1; }
  std::string description() const override { return "broken source"; }
  int64_t resident_bytes() const override { return 0; }
  bool slow = false;

 private:
  Field field_{"x", {DType::u8, {1}}};
};

TEST(Loader, ErrorsComeFromNextInOrder) {
  const Broken source;
  for (int threads : {1, 4}) {
    LoaderConfig config{.batch = 10, .shuffle = false, .augment = {}, .threads = threads};
    Staging staging(source, 10, 4);
    Loader loader(source, config, staging.slots);
    loader.start(0);
    for (int i = 0; i < 3; ++i) loader.release(loader.next().slot);
    for (int i = 0; i < 2; ++i) {
      try {
        loader.next();
        FAIL();
      } catch (const UserError& e) {
        EXPECT_STREQ(e.what(), "sample 37 is broken");
      }
    }
    loader.start(0, 6);
    EXPECT_EQ(loader.next().index, 6);
  }
}

TEST(Loader, WarnsWhenItStalls) {
  Broken source;
  source.slow = true;
  LoaderConfig config{.batch = 2, .shuffle = false, .augment = {}, .threads = 1, .stall_seconds = 0.05};
  Staging staging(source, 2, 1);
  Loader loader(source, config, staging.slots);
  loader.start(0);
  std::string text;
  set_warning_sink([&](const std::string& line) { text += line; });
  loader.next();
  set_warning_sink({});
  EXPECT_NE(text.find("data stall"), std::string::npos) << text;
  EXPECT_NE(text.find("broken source"), std::string::npos) << text;
  EXPECT_GT(loader.waited_seconds(), 0.05);
}

TEST(Loader, StopsCleanlyAtAnyTime) {
  const auto source = images(333);
  for (int i = 0; i < 40; ++i) {
    LoaderConfig config = kConfig;
    config.threads = 1 + i % 4;
    Staging staging(*source, 50, 1 + i % 3);
    Loader loader(*source, config, staging.slots);
    if (i % 5 != 0) loader.start(i);
    if (i % 5 > 2) loader.next();
  }
}

TEST(Loader, RefusesWhatCannotWork) {
  const auto source = images(20);
  Staging staging(*source, 50, 1);
  EXPECT_THROW(Loader(*source, {.batch = 21, .augment = {}}, staging.slots), UserError);
  EXPECT_THROW(Loader(*source, {.batch = 0, .augment = {}}, staging.slots), UserError);
  EXPECT_THROW(Loader(*source, {.batch = 5, .augment = {.crop = 12}}, staging.slots), UserError);
  const auto text = make_text(std::string(100, 'x'), 10, 256, "t");
  EXPECT_THROW(Loader(*text, {.batch = 5, .augment = {.flip = true}}, staging.slots), UserError);
  class Fields final : public Source {
   public:
    explicit Fields(size_t count) : fields_(count, {"x", {DType::f32, {1}}}) {}
    int64_t size() const override { return 20; }
    std::span<const Field> fields() const override { return fields_; }
    void read(int64_t, SampleSpans) const override {}
    int64_t classes() const override { return 1; }
    std::string description() const override { return "fields"; }
    int64_t resident_bytes() const override { return 0; }

   private:
    std::vector<Field> fields_;
  };
  for (const size_t count : {size_t{0}, size_t{kMaxFields + 1}})
    EXPECT_THROW(Loader(Fields(count), {.batch = 5, .augment = {}}, staging.slots), UserError);
  Loader idle(*source, {.batch = 5, .augment = {}}, staging.slots);
  EXPECT_THROW(idle.next(), InternalError);
}

}  // namespace
}  // namespace lathe::data
