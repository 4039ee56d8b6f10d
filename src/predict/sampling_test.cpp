#include "predict/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"

namespace lathe {
namespace {

constexpr int kDraws = 20000;

std::vector<double> shares(const std::vector<float>& logits, Sampling s) {
  std::vector<double> out(logits.size(), 0.0);
  for (uint64_t i = 0; i < kDraws; ++i) out[static_cast<size_t>(sample_token(logits, s, i))] += 1.0 / kDraws;
  return out;
}

std::vector<float> logs(const std::vector<double>& probabilities) {
  std::vector<float> out;
  for (const double p : probabilities) out.push_back(static_cast<float>(std::log(p)) + 3.0f);
  return out;
}

// Five standard deviations of a share.
void expect_shares(const std::vector<double>& got, const std::vector<double>& expected) {
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], expected[i], 5 * std::sqrt(0.25 / kDraws) * (expected[i] > 0)) << i;
}

TEST(Sampling, GreedyTakesTheFirstOfTheMostLikely) {
  for (uint64_t i = 0; i < 50; ++i)
    EXPECT_EQ(sample_token(std::vector<float>{0.f, 2.f, 2.f, 1.f}, {.temperature = 0, .seed = i}, i), 1);
}

TEST(Sampling, DrawsByProbability) {
  const std::vector<double> p{0.1, 0.5, 0.15, 0.25};
  expect_shares(shares(logs(p), {.temperature = 1, .seed = 3}), p);
}

TEST(Sampling, TemperatureSharpensAndFlattens) {
  const std::vector<double> p{0.2, 0.8};
  // Weights p^(1/T): at 0.5 squares, at 2 roots.
  expect_shares(shares(logs(p), {.temperature = 0.5}), {0.04 / 0.68, 0.64 / 0.68});
  const double a = std::sqrt(0.2), b = std::sqrt(0.8);
  expect_shares(shares(logs(p), {.temperature = 2}), {a / (a + b), b / (a + b)});
}

TEST(Sampling, TopKKeepsTheMostLikely) {
  const std::vector<double> p{0.1, 0.4, 0.2, 0.3};
  expect_shares(shares(logs(p), {.temperature = 1, .top_k = 2}), {0, 0.4 / 0.7, 0, 0.3 / 0.7});
  expect_shares(shares(logs(p), {.temperature = 1, .top_k = 9}), p);
  expect_shares(shares(logs(p), {.temperature = 5, .top_k = 1}), {0, 1, 0, 0});
}

TEST(Sampling, TopPKeepsTheFewestThatReachIt) {
  const std::vector<double> p{0.1, 0.4, 0.2, 0.3};
  expect_shares(shares(logs(p), {.temperature = 1, .top_p = 0.6}), {0, 0.4 / 0.7, 0, 0.3 / 0.7});
  expect_shares(shares(logs(p), {.temperature = 1, .top_p = 1e-9}), {0, 1, 0, 0});
  // Of the three that top_k leaves, with 4/9, 3/9 and 2/9, two reach 0.7.
  expect_shares(shares(logs(p), {.temperature = 1, .top_k = 3, .top_p = 0.7}), {0, 0.4 / 0.7, 0, 0.3 / 0.7});
}

TEST(Sampling, IsAFunctionOfSeedAndPosition) {
  const std::vector<float> logits(64, 0.0f);
  const auto text = [&](uint64_t seed) {
    std::vector<int64_t> out;
    for (uint64_t i = 0; i < 40; ++i) out.push_back(sample_token(logits, {.temperature = 1, .seed = seed}, i));
    return out;
  };
  EXPECT_EQ(text(7), text(7));
  EXPECT_NE(text(7), text(8));
}

TEST(Sampling, TakesExtremeLogits) {
  const std::vector<float> huge{-3e38f, 3e38f, 0.f};
  for (const double t : {1e-300, 1.0, 1e300}) EXPECT_LT(sample_token(huge, {.temperature = t}, 1), 3) << t;
  EXPECT_EQ(sample_token(huge, {.temperature = 1}, 5), 1);
  const std::vector<float> bad{0.f, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_THROW(sample_token(bad, {}, 0), UserError);
  EXPECT_THROW(sample_token(bad, {.temperature = 0}, 0), UserError);
}

TEST(Sampling, RefusesValuesOutOfRange) {
  EXPECT_NO_THROW(check_sampling({}));
  for (const Sampling& s : {Sampling{.temperature = -1}, Sampling{.temperature = std::nan("")}, Sampling{.top_k = -1},
                            Sampling{.top_p = 0}, Sampling{.top_p = 1.5}, Sampling{.top_p = std::nan("")}})
    try {
      check_sampling(s);
      ADD_FAILURE();
    } catch (const UserError& e) {
      EXPECT_EQ(e.exit_code(), Exit::usage);
      EXPECT_NE(std::string(e.what()).find("expected"), std::string::npos);
    }
}

}  // namespace
}  // namespace lathe
