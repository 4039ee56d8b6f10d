// Buckets under way while the step goes on, on ranks that are threads: the trace shows both at once, and bits are those
// of one lane, whatever messages are late.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "backend/host_device.h"
#include "base/trace.h"
#include "comm/run_ranks.h"
#include "comm/threads.h"
#include "ops/elementwise.h"
#include "ops/grad.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "passes/bucket.h"
#include "plan/plan.h"
#include "plan/shadow.h"
#include "run/executor.h"
#include "run/lanes_run.h"

namespace lathe {
namespace {

using testing::bytes_after_steps;
using testing::with_lanes;

constexpr int kRanks = 2;

Graph layers_step(int layers, int64_t width) {
  Builder b("train");
  const Value x = b.input({DType::f32, {32, width}}, InputKind::batch, "x");
  Value y = x;
  Values params;
  for (int i = 0; i < layers; ++i) {
    const Origin layer(b, fmt::format("fc{}", i));
    params.push_back(b.input({DType::f32, {width, width}}, InputKind::param, fmt::format("w{}", i)));
    y = tanh(matmul(y, params.back()) * 0.2);
  }
  const Value loss = sum_all(square(y - x)) * 1e-3;
  const Values slopes = grad(loss, params);
  for (size_t i = 0; i < params.size(); ++i) b.update(params[i], params[i] - slopes[i] * 0.1);
  b.output(loss, OutputKind::result, "r");
  return b.finish();
}

// Of a rank: the first bucket does not end before the last layer of backward has run, which waits until the bucket has
// begun. Each gives up after a while.
struct Meeting {
  std::atomic<bool> begun{false}, passed{false}, gave_up{false};
  void wait(const std::atomic<bool>& flag) {
    for (int i = 0; !flag && i < 30'000; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (!flag) gave_up = true;
  }
};
std::array<Meeting, kRanks> meetings;

// The kernel that the plan chose, with that.
std::unique_ptr<Kernel> bind_meeting(Device& device, const Site& site, const KernelArgs& args) {
  class Meets final : public Kernel {
   public:
    Meets(std::unique_ptr<Kernel> kernel, Meeting& meeting, bool sums)
        : kernel_(std::move(kernel)), meeting_(meeting), sums_(sums) {}
    void prepare() override { kernel_->prepare(); }
    void run(Stream& stream) override {
      if (sums_) meeting_.begun = true;
      meeting_.wait(sums_ ? meeting_.passed : meeting_.begun);
      kernel_->run(stream);
      if (!sums_) meeting_.passed = true;
    }

   private:
    std::unique_ptr<Kernel> kernel_;
    Meeting& meeting_;
    bool sums_;
  };
  const auto rows = find_backend("cpu").kernels().candidates(site.node.op->name());
  const auto row =
      std::ranges::find_if(rows, [&](const KernelTable::Row& r) { return r.candidate.accepts(site).empty(); });
  auto kernel = row->candidate.bind(device, site, args);
  const bool sums = site.node.is("all_reduce");
  const std::string& origin = site.node.origin.str();
  if (sums ? !origin.starts_with("bucket0:") : origin != "grad:fc0") return kernel;
  const int rank = host_device(device).collectives(kRanks).rank();
  return std::make_unique<Meets>(std::move(kernel), meetings[static_cast<size_t>(rank)], sums);
}

KernelTable table_with_meetings() {
  const KernelTable& cpu = find_backend("cpu").kernels();
  std::vector<KernelTable::Row> rows;
  for (const std::string& op : cpu.ops())
    for (KernelTable::Row r : cpu.candidates(op)) {
      if (op == "all_reduce" || op == "matmul" || op == "fused") r.candidate.bind = bind_meeting;
      rows.push_back(r);
    }
  return KernelTable(rows);
}

std::unique_ptr<Executor> executor_of(comm::Group& group, int layers, int64_t bucket, const KernelTable& table) {
  auto device = find_backend("cpu").open({.threads = 1, .group = &group});
  PassContext context{device->target(), PassOptions().set(BucketOptions{.bytes = {bucket}})};
  context.mesh = {group.size(), group.rank()};
  ProgramSet set = plan({run_pipeline(layers_step(layers, 64), context)}, device->target(), table);
  return std::make_unique<Executor>(std::move(set), std::move(device), ExecutorOptions{.slots = 1, .snapshot = false});
}

// The bytes that each rank has after some steps.
std::vector<std::vector<std::byte>> train(const comm::ThreadOptions& options, int64_t bucket, Lane lane,
                                          uint32_t seed) {
  const auto groups = comm::thread_groups(kRanks, options);
  std::vector<std::vector<std::byte>> out(groups.size());
  comm::run_ranks(groups, [&](comm::Group& group) {
    const auto e = executor_of(group, 6, bucket, with_lanes(find_backend("cpu").kernels(), {{"all_reduce", lane}}));
    out[static_cast<size_t>(group.rank())] = bytes_after_steps(*e, seed, 3);
  });
  return out;
}

TEST(OverlapRun, BitsAreThoseOfOneLane) {
  for (const int64_t bucket : {1, 40'000, 1 << 20}) {
    const auto expected = train({}, bucket, Lane::compute, 5);
    for (uint64_t seed = 0; seed < 6; ++seed) {
      comm::ThreadOptions late;
      late.faults = {.seed = seed, .delay = 0.5, .longest = 1e-3};
      const auto now = train(late, bucket, Lane::communication, 5);
      for (size_t r = 0; r < now.size(); ++r) EXPECT_TRUE(now[r] == expected[r]) << "rank " << r << " seed " << seed;
    }
  }
}

// The trace shows a layer of backward within the time of a bucket that began before it.
TEST(OverlapRun, ComputeGoesOnWhileABucketIsUnderWay) {
  Trace trace(100'000);
  comm::ThreadOptions late;
  late.faults = {.seed = 3, .delay = 0.5, .longest = 1e-3};
  const auto groups = comm::thread_groups(kRanks, late);
  std::vector<std::unique_ptr<Executor>> all;
  std::vector<size_t> first_label;  // by rank
  for (const auto& group : groups) {
    first_label.push_back(trace.data().labels.size());
    all.push_back(executor_of(*group, 24, 4 * 64 * 64 * 4, table_with_meetings()));
  }
  first_label.push_back(trace.data().labels.size());
  trace.start();
  std::vector<std::thread> threads;
  for (const auto& e : all) threads.emplace_back([&] { bytes_after_steps(*e, 1, 1); });
  for (std::thread& t : threads) t.join();
  trace.stop();
  const TraceData found = trace.data();
  for (size_t r = 0; r < all.size(); ++r) {
    EXPECT_FALSE(meetings[r].gave_up) << "rank " << r;
    TraceSpan sum, layer;
    size_t sums = 0;
    for (const TraceSpan& s : found.spans) {
      const auto label = static_cast<size_t>(s.label);
      if (label < first_label[r] || label >= first_label[r + 1] || s.part) continue;
      sums += found.labels[label].lane == "communication";
      if (found.labels[label].node.starts_with("all_reduce bucket0:")) sum = s;
      if (found.labels[label].node.ends_with("grad:fc0")) layer = s;
    }
    EXPECT_EQ(sums, 6u);
    EXPECT_LT(sum.begin, layer.end);
    EXPECT_LT(layer.begin, sum.end);
    EXPECT_NE(sum.lane, layer.lane);
  }
}

}  // namespace
}  // namespace lathe
