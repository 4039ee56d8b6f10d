#include "backend/opencl/opencl_device.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "backend/kernels/loop_calls.h"
#include "backend/opencl/batch_test.h"
#include "backend/opencl/opencl_backend.h"

namespace lathe {
namespace {

#define OPEN_OR_SKIP(device)                                  \
  std::string device##_reason;                                \
  const auto device = open_test_device({}, &device##_reason); \
  if (!device) GTEST_SKIP() << device##_reason

// y = x + 1 over n floats, with source unique to this program's tests.
std::unique_ptr<Kernel> add_one(OpenClDevice& d, const Buffer& y, const Buffer& x) {
  LoopNest nest = copy_nest(DType::f32, {x.bytes / 4}, 0, {1}, 0, 0, {1}, 0);
  nest.map.push_back({.op = ScalarOp::constant, .value = 1});
  nest.map.push_back({.op = ScalarOp::add, .a = 0, .b = 1});
  nest.map_stores = {2};
  return d.bind(loop_calls(nest, d.style()), {{y}, {x}, {}});
}

TEST(OpenClDevice, ListsDevices) {
  const auto devices = opencl_backend().devices();
  if (devices.empty()) {
    EXPECT_NE(opencl_backend().unavailable_reason(), "");
    GTEST_SKIP() << opencl_backend().unavailable_reason();
  }
  EXPECT_EQ(opencl_backend().unavailable_reason(), "");
  EXPECT_EQ(devices[0].name, "opencl:0");
  EXPECT_NE(devices[0].description, "");
  EXPECT_GT(devices[0].memory, 0);
  const Target t = opencl_backend().target({});
  EXPECT_GE(t.alignment, 128);
  EXPECT_FALSE(t.host_memory);
  EXPECT_TRUE(t.is_native("matmul"));
  EXPECT_TRUE(t.is_native("conv2d"));
  EXPECT_THROW(opencl_backend().open({.index = 1000}), DeviceError);
}

TEST(OpenClDevice, TargetNeedsNoDevice) {
  const Target t = opencl_backend().target({.index = 1000});
  EXPECT_EQ(t.name, "opencl");
  EXPECT_TRUE(t.is_native("add"));
}

TEST(OpenClDevice, ArenaIsZeroAndCopies) {
  OPEN_OR_SKIP(device);
  const int64_t segments[] = {1024, 4096};
  device->allocate(segments);
  Stream& s = device->stream(Lane::transfer);
  std::vector<std::byte> bytes(4096, std::byte{1}), pattern(512);
  s.copy_out(bytes.data(), {1, 0, 4096});
  s.synchronize();
  for (const std::byte b : bytes) ASSERT_EQ(b, std::byte{0});
  for (size_t i = 0; i < pattern.size(); ++i) pattern[i] = static_cast<std::byte>(i * 7);
  s.copy_in({0, 256, 512}, pattern.data());
  s.copy({1, 1024, 512}, {0, 256, 512});
  s.copy({0, 0, 128}, {0, 256, 128});  // within one segment
  s.copy_out(bytes.data(), {1, 1024, 512});
  s.synchronize();
  EXPECT_EQ(std::memcmp(bytes.data(), pattern.data(), 512), 0);
  EXPECT_THROW(s.copy_in({1, 4000, 512}, pattern.data()), InternalError);
}

TEST(OpenClDevice, TooLargeASegmentNamesTheSizes) {
  OPEN_OR_SKIP(device);
  const int64_t segments[] = {device->target().largest_allocation + 1};
  try {
    device->allocate(segments);
    FAIL();
  } catch (const DeviceError& e) {
    EXPECT_NE(std::string(e.what()).find(std::to_string(segments[0])), std::string::npos) << e.what();
  }
}

// The executor's pattern: uploads on one queue, kernels on the other, two slots, an event each way.
TEST(OpenClDevice, EventsOrderTheQueues) {
  OpenClDeviceOptions options;
  options.trace = true;
  std::string reason;
  const auto device = open_test_device(options, &reason);
  if (!device) GTEST_SKIP() << reason;
  constexpr int64_t kCount = 1 << 20, kBytes = kCount * 4;
  const int64_t segments[] = {4 * kBytes};
  device->allocate(segments);
  const Buffer slot[2] = {{0, 0, kBytes}, {0, kBytes, kBytes}};
  const Buffer y[2] = {{0, 2 * kBytes, kBytes}, {0, 3 * kBytes, kBytes}};
  std::unique_ptr<Kernel> kernels[2] = {add_one(*device, y[0], slot[0]), add_one(*device, y[1], slot[1])};
  std::unique_ptr<Event> uploaded[2] = {device->make_event(), device->make_event()};
  std::unique_ptr<Event> consumed[2] = {device->make_event(), device->make_event()};
  Stream &transfer = device->stream(Lane::transfer), &compute = device->stream(Lane::compute);
  constexpr int kSteps = 12;
  std::vector<float*> in, out;
  for (int i = 0; i < kSteps; ++i) {
    in.push_back(reinterpret_cast<float*>(device->allocate_staging(kBytes)));
    out.push_back(reinterpret_cast<float*>(device->allocate_staging(kBytes)));
    std::fill_n(in[static_cast<size_t>(i)], kCount, static_cast<float>(i));
  }
  for (const auto& kernel : kernels) kernel->run(compute);
  compute.synchronize();  // compiled
  const DeviceCounters before = device->counters();
  for (size_t i = 0; i < kSteps; ++i) {
    const size_t turn = i % 2;
    transfer.wait(*consumed[turn]);  // nothing to wait for in the first round
    transfer.copy_in(slot[turn], in[i]);
    transfer.record(*uploaded[turn]);
    compute.wait(*uploaded[turn]);
    kernels[turn]->run(compute);
    compute.record(*consumed[turn]);
    compute.copy_out(out[i], y[turn]);
  }
  EXPECT_EQ(device->counters().blocking, before.blocking);
  EXPECT_EQ(device->counters().allocations, before.allocations);
  EXPECT_EQ(device->counters().launches, before.launches + kSteps);
  compute.synchronize();
  transfer.synchronize();
  // The upload of a step starts before the last kernel of the step before it ends.
  std::vector<OpenClSpan> uploads, runs;
  for (const OpenClSpan& s : device->spans()) {
    if (s.what == "copy_in") uploads.push_back(s);
    if (s.what.starts_with("loop_")) runs.push_back(s);
  }
  ASSERT_EQ(uploads.size(), static_cast<size_t>(kSteps));
  ASSERT_EQ(runs.size(), static_cast<size_t>(kSteps) + 2);
  int early = 0;
  for (size_t i = 1; i < kSteps; ++i) early += uploads[i].start < runs[i + 1].end;  // of step i - 1
  EXPECT_GE(early, kSteps / 2) << "of " << kSteps - 1;
  for (size_t i = 0; i < kSteps; ++i)
    for (int64_t k : {int64_t{0}, kCount / 2, kCount - 1})
      ASSERT_EQ(out[i][k], static_cast<float>(i + 1)) << i << " " << k;
}

TEST(OpenClDevice, CompilesEachTextOnce) {
  OPEN_OR_SKIP(device);
  const int64_t segments[] = {4096};
  device->allocate(segments);
  auto a = add_one(*device, {0, 0, 512}, {0, 1024, 512});
  auto b = add_one(*device, {0, 2048, 1000}, {0, 1024, 1000});  // another size, the same text
  a->run(device->stream(Lane::compute));
  b->run(device->stream(Lane::compute));
  auto c = add_one(*device, {0, 2048, 100}, {0, 1024, 100});
  c->run(device->stream(Lane::compute));
  device->stream(Lane::compute).synchronize();
  EXPECT_EQ(device->library().programs(), 1);
}

class CacheFolder {
 public:
  CacheFolder()
      : path_((std::filesystem::temp_directory_path() / fmt::format("lathe-cache-test-{}", getpid())).string()) {
    std::filesystem::remove_all(path_);
  }
  ~CacheFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> out;
    if (std::filesystem::exists(path_))
      for (const auto& e : std::filesystem::directory_iterator(path_)) out.push_back(e.path());
    return out;
  }

 private:
  std::string path_;
};

TEST(OpenClDevice, CacheHitsAndSurvivesDamage) {
  CacheFolder folder;
  struct Result {
    int builds, hits;
    float y;
  };
  std::string reason;
  if (opencl_devices(&reason).empty()) GTEST_SKIP() << reason;
  const auto run = [&]() -> Result {
    OpenClDeviceOptions options;
    options.cache_folder = folder.path();
    const auto device = open_test_device(options, &reason);
    const int64_t segments[] = {1024};
    device->allocate(segments);
    auto kernel = add_one(*device, {0, 0, 256}, {0, 512, 256});
    Stream& s = device->stream(Lane::compute);
    kernel->run(s);
    Result r{device->library().builds(), device->library().cache_hits(), 0};
    s.copy_out(&r.y, {0, 0, 4});
    s.synchronize();
    return r;
  };
  const auto expect = [](const Result& r, int builds, int hits) {
    EXPECT_EQ(r.builds, builds);
    EXPECT_EQ(r.hits, hits);
    EXPECT_EQ(r.y, 1.0f);
  };
  expect(run(), 1, 0);
  ASSERT_EQ(folder.files().size(), 1u) << "one file, and no temporary one";
  const auto file = folder.files()[0];
  expect(run(), 0, 1);
  // One bit flipped in the middle: the entry is rebuilt, and good again afterwards.
  {
    std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
    f.seekg(static_cast<std::streamoff>(std::filesystem::file_size(file) / 2));
    const int c = f.get();
    f.seekp(-1, std::ios::cur);
    f.put(static_cast<char>(c ^ 1));
  }
  expect(run(), 1, 0);
  expect(run(), 0, 1);
  std::filesystem::resize_file(file, 5);
  expect(run(), 1, 0);
  expect(run(), 0, 1);
  // Whole by its hash, but nothing that the driver takes for a program.
  const std::string key = file.stem().string();
  BinaryCache(folder.path()).store(key, std::vector<unsigned char>(1000, 0x55));
  expect(run(), 1, 0);
}

TEST(TileStore, KeepsWholeFilesOnly) {
  CacheFolder folder;
  const TileStore store(folder.path(), "some device", LaunchStyle::narrow);
  EXPECT_FALSE(store.load());
  ProductTiles tiles;
  tiles.micro_rows = 12;
  tiles.depth = 128;
  tiles.attention_rows = 64;
  tiles.loop_items = 32;
  ASSERT_TRUE(store.save(tiles));
  EXPECT_EQ(store.load(), tiles);
  EXPECT_FALSE(TileStore(folder.path(), "another device", LaunchStyle::narrow).load());
  EXPECT_FALSE(TileStore(folder.path(), "some device", LaunchStyle::wide).load());
  const std::string text = tiles_to_text(tiles);
  for (size_t length = 0; length + 1 < text.size(); ++length)
    EXPECT_FALSE(tiles_from_text(text.substr(0, length))) << length;
  EXPECT_FALSE(TileStore("", "some device", LaunchStyle::narrow).save(tiles));
}

TEST(ProductTiles, ThatMakeNoKernelAreNamed) {
  ProductTiles t;
  t.style = LaunchStyle::wide;
  EXPECT_EQ(check_tiles(t, 256, 32768), "");
  EXPECT_NE(check_tiles(t, 128, 32768), "");
  EXPECT_NE(check_tiles(t, 256, 8000), "");
  t.attention_rows = 64;
  EXPECT_EQ(check_tiles(t, 256, 32768), "");
  t.attention_rows = 48;
  EXPECT_NE(check_tiles(t, 256, 32768), "");
  t.attention_rows = 16;
  t.loop_items = 512;
  EXPECT_NE(check_tiles(t, 256, 32768), "");
  t.loop_items = 96;
  EXPECT_NE(check_tiles(t, 256, 32768), "");
  t.loop_items = 128;
  EXPECT_EQ(check_tiles(t, 256, 32768), "");
  t.tile_rows = 60;
  EXPECT_NE(check_tiles(t, 256, 32768), "");
  t = {};
  t.micro_rows = 0;
  EXPECT_NE(check_tiles(t, 1, 32768), "");
}

TEST(BinaryCache, FolderFollowsTheEnvironment) {
  const auto folder = [](const char* own, const char* xdg) {
    own ? setenv("LATHE_CACHE_DIR", own, 1) : unsetenv("LATHE_CACHE_DIR");
    xdg ? setenv("XDG_CACHE_HOME", xdg, 1) : unsetenv("XDG_CACHE_HOME");
    return BinaryCache::default_folder();
  };
  EXPECT_EQ(folder("/a", "/b"), "/a");
  EXPECT_EQ(folder(nullptr, "/b"), "/b/lathe");
  unsetenv("XDG_CACHE_HOME");
}

// Many ranks start at once: each reader sees a whole entry or none.
TEST(BinaryCache, ManyWritersOneKey) {
  CacheFolder folder;
  const BinaryCache cache(folder.path());
  std::vector<std::thread> ranks;
  std::atomic<int> torn{0}, seen{0};
  for (int rank = 0; rank < 8; ++rank)
    ranks.emplace_back([&, rank] {
      for (int i = 0; i < 20; ++i) {
        cache.store("k",
                    std::vector<unsigned char>(20000 + static_cast<size_t>(rank), static_cast<unsigned char>(rank)));
        if (const auto got = cache.load("k")) {
          ++seen;
          const size_t writer = (*got)[0];
          torn +=
              got->size() != 20000 + writer || std::ranges::any_of(*got, [&](unsigned char c) { return c != writer; });
        }
      }
    });
  for (std::thread& t : ranks) t.join();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(seen, 160) << "an entry that was whole never goes missing";
  EXPECT_EQ(folder.files().size(), 1u) << "no temporary file is left";
}

TEST(BinaryCache, AnUnwritableFolderIsNoError) {
  const BinaryCache cache("/proc/nowhere");
  cache.store("k", {1, 2, 3});
  EXPECT_FALSE(cache.load("k"));
}

}  // namespace
}  // namespace lathe
