#include "plan/cost/exposed.h"

#include <gtest/gtest.h>

#include "ops/collective.h"
#include "plan/plan.h"
#include "plan/shadow.h"
#include "plan/test_graphs.h"

namespace lathe {
namespace {

constexpr int kLayers = 6, kPlanned = 4;
constexpr int64_t kSize = 64;
constexpr double kSumBytes = kSize * kSize * 4;  // of each gradient

// Products backward, each of which gives a gradient of size x size; the kernels are never run.
Program chain(int64_t in_flight, int64_t size = kSize) {
  Builder b("chain");
  Value x = b.input({DType::f32, {size, size}}, InputKind::batch, "x");
  for (int i = 0; i < kLayers; ++i) {
    x = matmul(x, x);
    const Value w = b.input({DType::f32, {size, size}}, InputKind::param, fmt::format("w{}", i));
    b.update(w, w + all_reduce(matmul(x, x, true), kPlanned));
  }
  b.output(sum_all(x), OutputKind::metric, "loss");
  std::vector<KernelTable::Row> rows;
  for (KernelTable::Row r : ref_kernels()) {
    rows.push_back(r);
    if (r.op != "tanh") continue;
    r.op = "all_reduce";
    r.candidate.lane = Lane::communication;
    rows.push_back(r);
  }
  return plan({b.finish()}, {}, KernelTable(rows), {.in_flight = in_flight}).programs[0];
}

const Rates kRates{1e9, 1e30};  // products and sums take time, memory does not

TEST(Exposed, BytesAndSecondsAreThoseOfRings) {
  const Link link{1e-3, 1e6};
  const StepTimes t = predict_times(chain(1 << 30), kRates, link);
  EXPECT_EQ(t.collectives, kLayers);
  EXPECT_DOUBLE_EQ(t.bytes_sent, kLayers * kSumBytes * 2 * 3 / 4);
  EXPECT_NEAR(t.communication, kLayers * (6 * 1e-3 + kSumBytes * 1.5 / 1e6), 1e-9);
  EXPECT_DOUBLE_EQ(t.exposed, t.seconds - t.compute);
}

// Collectives shorter than the compute beside them are hidden, but for the last; those that are waited for at once are
// not.
TEST(Exposed, OverlapHidesWhatItCan) {
  const double product = 2.0 * 64 * 64 * 64 / 1e9;        // seconds
  const Link link{0, kSumBytes * 1.5 / (0.9 * product)};  // a sum takes 0.9 of that
  const StepTimes side = predict_times(chain(1 << 30), kRates, link), apart = predict_times(chain(0), kRates, link);
  EXPECT_NEAR(side.communication, kLayers * 0.9 * product, 1e-9);
  EXPECT_NEAR(apart.exposed, apart.communication, 1e-9);
  EXPECT_LT(side.exposed, 1.01 * 0.9 * product);
  EXPECT_NEAR(side.compute, apart.compute, 1e-12);
  // A slow link cannot be hidden.
  const StepTimes slow = predict_times(chain(1 << 30), kRates, {0, kSumBytes * 1.5 / (10 * product)});
  EXPECT_GT(slow.exposed, 0.7 * slow.communication);
  EXPECT_GE(slow.seconds, slow.communication);
}

TEST(Exposed, ScalesToManyRanks) {
  const Link link{1e-6, 1e9};
  const Program p = chain(1 << 30);
  const std::vector<ScalingPoint> points = predict_scaling(p, kRates, link);
  ASSERT_EQ(points.size(), 11u);
  EXPECT_EQ(points[0].times.bytes_sent, 0);
  EXPECT_EQ(points[0].times.communication, 0);
  EXPECT_EQ(points.back().ranks, 1024);
  for (size_t i = 1; i < points.size(); ++i) {
    EXPECT_LE(points[i].efficiency, points[i - 1].efficiency);
    EXPECT_GT(points[i].times.communication, points[i - 1].times.communication);
  }
  const StepTimes planned = predict_times(p, kRates, link);
  EXPECT_DOUBLE_EQ(points[2].times.seconds, planned.seconds);
  EXPECT_NEAR(points.back().times.communication, kLayers * (2046 * 1e-6 + kSumBytes * 2 * 1023 / 1024 / 1e9), 1e-9);
  EXPECT_NE(scaling_table(points).find("  1024 "), std::string::npos) << scaling_table(points);
}

TEST(Exposed, ScalesToTheNumberThatWasAskedFor) {
  const std::vector<ScalingPoint> points = predict_scaling(chain(1 << 30), kRates, {1e-6, 1e9}, 1500);
  ASSERT_EQ(points.size(), 12u);
  EXPECT_EQ(points[10].ranks, 1024);
  EXPECT_EQ(points[11].ranks, 1500);
}

// 1 KiB: by doubling, 10 turns among 1,024 ranks.
TEST(Exposed, SmallSumsTakeFewTurns) {
  const Program p = chain(1 << 30, 16);
  const Link link{1e-3, 1e30};
  EXPECT_NEAR(predict_times(p, kRates, link).communication, kLayers * 2 * 1e-3, 1e-9);
  EXPECT_NEAR(predict_times(p, kRates, link, 1024).communication, kLayers * 10 * 1e-3, 1e-9);
  EXPECT_NEAR(predict_times(chain(1 << 30), kRates, link, 1024).communication, kLayers * 2046 * 1e-3, 1e-9);
}

TEST(Exposed, OneRankHasNothingToHide) {
  const Program p = plan({testing::mlp_step(8, {16, 8, 4})}, {}, testing::plain_table()).programs[0];
  const StepTimes t = predict_times(p, rates_of({}), {});
  EXPECT_GT(t.seconds, 0);
  EXPECT_EQ(t.exposed, 0);
  EXPECT_EQ(t.collectives, 0);
}

}  // namespace
}  // namespace lathe
