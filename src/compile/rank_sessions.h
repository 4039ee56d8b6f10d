// For tests: something done by ranks that are threads of this process, and something to do.
#pragma once

#include <cmath>
#include <vector>

#include "base/part.h"
#include "comm/run_ranks.h"
#include "comm/threads.h"
#include "nn/layers.h"
#include "nn/step/train_set.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "session/session.h"

namespace lathe {

// f(group) on each rank, side by side; its results by rank. An error on a rank ends the others, and is thrown.
template <class F>
auto on_ranks(int ranks, F&& f) {
  const auto groups = comm::thread_groups(ranks);
  std::vector<decltype(f(groups[0].get()))> out(groups.size());
  comm::run_ranks(groups, [&](comm::Group& group) { out[static_cast<size_t>(group.rank())] = f(&group); });
  return out;
}

// A batch of 10 samples of 3 numbers.
inline constexpr int64_t kRankSamples = 10, kRankWide = 3;

// Two layers, batch norm between them: graphs "train" and "eval".
inline StepSet two_layers(const OptimizerConfig& optimizer) {
  StepSet all;
  for (const bool train : {true, false}) {
    Builder b(train ? "train" : "eval");
    Net net(b, train ? Mode::train : Mode::eval);
    const Value x = b.input({DType::f32, {kRankSamples, kRankWide}}, InputKind::batch, "x");
    const Value y = b.input({DType::f32, {kRankSamples, 1}}, InputKind::batch, "y");
    const Value out = linear(net, "last", relu(batch_norm(net, "norm", linear(net, "first", x, 16))), 1);
    const Value loss = reduce_mean(square(out - y), {0, 1});
    if (train) {
      merge(all, train_set(net, loss, optimizer));
    } else {
      b.output(loss, OutputKind::metric, "loss");
      b.output(out, OutputKind::result, "out");
      merge(all, finish_set(net));
    }
  }
  return all;
}

// Of the batch of a step, the samples of a rank.
inline void feed_samples(Session& s, const Part& own, int step) {
  std::vector<float> x, y;
  for (int64_t i = own.first; i < own.last; ++i) {
    for (int64_t k = 0; k < kRankWide; ++k) x.push_back(std::sin(static_cast<float>(7 * step + 3 * i + k)));
    y.push_back(x[x.size() - 3] - 2 * x[x.size() - 2] + 0.5F * x.back());
  }
  s.feed("x", x);
  s.feed("y", y);
}

}  // namespace lathe
