#include "predict/sampling.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/philox.h"

namespace lathe {
namespace {

constexpr uint32_t kSamplingStream = 0x73616d70;  // "samp"

double uniform_at(uint64_t seed, uint64_t position) {
  const CounterRng rng(seed, kSamplingStream, static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32));
  return (rng.bits(0) + 0x1p-32 * rng.bits(1)) * 0x1p-32;
}

void usage_check(bool ok, const char* option, const char* expected, double got) {
  if (!ok) throw UserError(fmt::format("{}: expected {}, got {}", option, expected, got), Exit::usage);
}

}  // namespace

std::vector<double> softmax_of(std::span<const float> logits) {
  const double top = *std::ranges::max_element(logits);
  std::vector<double> p;
  double sum = 0;
  for (const float v : logits) {
    p.push_back(std::exp(v - top));
    sum += p.back();
  }
  for (double& v : p) v /= sum;
  return p;
}

void check_sampling(const Sampling& s) {
  usage_check(std::isfinite(s.temperature) && s.temperature >= 0, "--temperature", "a number of at least 0",
              s.temperature);
  usage_check(s.top_k >= 0, "--top-k", "a number of at least 0", static_cast<double>(s.top_k));
  usage_check(s.top_p > 0 && s.top_p <= 1, "--top-p", "a number above 0, at most 1", s.top_p);
}

int64_t sample_token(std::span<const float> logits, const Sampling& s, uint64_t position) {
  LATHE_CHECK(!logits.empty(), "no logits");
  for (const float v : logits)
    LATHE_USER_CHECK(std::isfinite(v),
                     "the model's output is {}: its weights are not those of a good run; take another checkpoint "
                     "(--best), or train with a lower optimizer.lr or with train.clip_norm",
                     v);
  const float top = *std::ranges::max_element(logits);
  if (s.temperature == 0) return std::ranges::find(logits, top) - logits.begin();

  struct Choice {
    double weight;
    int64_t token;
  };
  std::vector<Choice> choices;
  for (size_t i = 0; i < logits.size(); ++i)
    choices.push_back({std::exp((static_cast<double>(logits[i]) - top) / s.temperature), static_cast<int64_t>(i)});
  std::ranges::stable_sort(choices, [](const Choice& a, const Choice& b) { return a.weight > b.weight; });
  if (s.top_k > 0 && s.top_k < static_cast<int64_t>(choices.size())) choices.resize(static_cast<size_t>(s.top_k));
  const auto sum = [&] {
    double all = 0;
    for (const Choice& c : choices) all += c.weight;
    return all;
  };
  if (s.top_p < 1) {
    const double enough = s.top_p * sum();
    double reached = 0;
    size_t kept = 0;
    while (kept < choices.size() && reached < enough) reached += choices[kept++].weight;
    choices.resize(kept);
  }
  double rest = uniform_at(s.seed, position) * sum();
  for (const Choice& c : choices) {
    if (rest < c.weight) return c.token;
    rest -= c.weight;
  }
  return choices.back().token;  // rounding used up the sum
}

}  // namespace lathe
