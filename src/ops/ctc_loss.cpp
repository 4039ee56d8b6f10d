#include "ops/ctc_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/broadcast.h"
#include "ops/cast.h"
#include "ops/concat.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/gather.h"
#include "ops/log_sum_exp.h"
#include "ops/pad.h"
#include "ops/reshape.h"
#include "ops/slice.h"

namespace lathe {
namespace {

constexpr double kImpossible = -1e30;  // the logarithm of nothing, finite
constexpr int64_t kMostFrames = 4096;

// The labels with blanks before, between and behind them: [B, 2 S + 1]. Only the first 2 length + 1 count.
Value with_blanks(Builder& b, Value labels, Value lengths, int64_t blank) {
  const int64_t batch = labels.dim(0), count = labels.dim(1);
  const Value none = constant_like(labels, static_cast<double>(blank));
  const Value valid = less(iota(b, {DType::i32, {1, count}}, 1), reshape(lengths, {batch, 1}));
  const Value said = reshape(select(valid, labels, none), {batch, count, 1});
  const Value pairs[] = {broadcast_to(none, {batch, count, 1}), said};
  const Value parts[] = {reshape(concat(pairs, 2), {batch, 2 * count}), broadcast_to(none, {batch, 1})};
  return concat(parts, 1);
}

// x[b, t, path[b, s]]: [B, T, L]
Value emissions(Builder& b, Value x, Value path) {
  const int64_t batch = x.dim(0), frames = x.dim(1), classes = x.dim(2), states = path.dim(1);
  const Value at = iota(b, {DType::i32, {batch, frames, 1}}, 0) * static_cast<double>(frames * classes) +
                   iota(b, {DType::i32, {1, frames, 1}}, 1) * static_cast<double>(classes);
  const Value inside =
      minimum(maximum(path, constant_like(path, 0)), constant_like(path, static_cast<double>(classes - 1)));
  return gather(reshape(x, {batch * frames * classes}), at + reshape(inside, {batch, 1, states}));
}

// x moved by `by` states to the right.
Value behind(Value x, int64_t by, double fill) {
  return pad(slice_axis(x, 1, 0, x.dim(1) - by), {0, by}, {0, 0}, fill);
}

struct CtcLoss {
  using Params = CtcLossParams;
  static constexpr OpInfo info{.name = "ctc_loss",
                               .doc = "-log probability of label sequences over all alignments with the frames",
                               .inputs = 4};

  static Types infer(ArgTypes x, const Params& p) {
    const Shape& s = x[0].shape;
    LATHE_USER_CHECK(is_float(x[0].dtype) && s.ndim() == 3 && s[1] >= 1 && s[2] >= 1,
                     "ctc_loss: expected log-probabilities [batch, frames, classes], got {}", to_string(x[0]));
    LATHE_USER_CHECK(s[1] <= kMostFrames && s.numel() <= std::numeric_limits<int32_t>::max(),
                     "ctc_loss: {}: more than {} frames, or too large for i32", to_string(s), kMostFrames);
    LATHE_USER_CHECK(x[1].dtype == DType::i32 && x[1].shape.ndim() == 2 && x[1].shape[0] == s[0] &&
                         x[1].shape[1] >= 1 && x[1].shape[1] <= s[1],
                     "ctc_loss: expected labels i32[{}, 1 .. {}], got {}", s[0], s[1], to_string(x[1]));
    for (const TensorType& t : x.subspan(2))
      LATHE_USER_CHECK(t == (TensorType{DType::i32, {s[0]}}), "ctc_loss: expected frames and lengths i32[{}], got {}",
                       s[0], to_string(t));
    LATHE_USER_CHECK(p.blank >= 0 && p.blank < s[2], "ctc_loss: blank {} of {} classes", p.blank, s[2]);
    return {{x[0].dtype, {s[0]}}};
  }

  static Values expand(Builder& b, ArgValues in, const Params& p) {
    const Value x = in[0], frames = reshape(in[2], {x.dim(0), 1}), ends = reshape(in[3], {x.dim(0), 1}) * 2.0;
    const Value path = with_blanks(b, in[1], in[3], p.blank), none = constant_like(x, kImpossible);
    const int64_t batch = x.dim(0), states = path.dim(1);
    const Value all = emissions(b, x, path), place = iota(b, {DType::i32, {1, states}}, 1);
    const auto at = [&](int64_t t) { return reshape(slice_axis(all, 1, t, 1), {batch, states}); };
    // A blank between two labels may be left out where they differ.
    const Value blank = constant_like(path, static_cast<double>(p.blank));
    const Value skips =
        logical_and(not_equal(path, blank), not_equal(path, behind(path, 2, static_cast<double>(p.blank))));
    Value alpha = select(broadcast_to(less(place, constant_like(place, 2)), {batch, states}), at(0), none);
    for (int64_t t = 1; t < x.dim(1); ++t) {
      const Shape column{batch, states, 1};
      const Value ways[] = {reshape(alpha, column), reshape(behind(alpha, 1, kImpossible), column),
                            reshape(select(skips, behind(alpha, 2, kImpossible), none), column)};
      const Value next = log_sum_exp(concat(ways, 2), {2}) + at(t);
      const Value more = less(constant_like(frames, static_cast<double>(t)), frames);
      alpha = select(broadcast_to(more, {batch, states}), next, alpha);
    }
    const Value last = logical_or(equal(place, ends), equal(place, ends - 1.0));
    return {-log_sum_exp(select(last, alpha, none), {1})};
  }

  static void reference(RefOuts y, RefIns x, const Params& p) {
    const Shape& s = x[0].shape();
    const int64_t most = x[1].shape()[1];
    const auto join = [](double a, double b) {
      const double top = std::max(a, b);
      return top + std::log(std::exp(a - top) + std::exp(b - top));
    };
    for (int64_t b = 0; b < s[0]; ++b) {
      const int64_t frames = std::clamp<int64_t>(static_cast<int64_t>(x[2][b]), 1, s[1]);
      const int64_t count = std::clamp<int64_t>(static_cast<int64_t>(x[3][b]), 0, most), states = 2 * count + 1;
      const auto label = [&](int64_t state) {
        const int64_t c = state % 2 == 0 ? p.blank : static_cast<int64_t>(x[1][b * most + state / 2]);
        return std::clamp<int64_t>(c, 0, s[2] - 1);
      };
      const auto said = [&](int64_t t, int64_t state) { return x[0][(b * s[1] + t) * s[2] + label(state)]; };
      std::vector<double> alpha(static_cast<size_t>(states), kImpossible), next = alpha;
      for (int64_t i = 0; i < std::min<int64_t>(2, states); ++i) alpha[static_cast<size_t>(i)] = said(0, i);
      for (int64_t t = 1; t < frames; ++t) {
        for (int64_t i = 0; i < states; ++i) {
          double sum = alpha[static_cast<size_t>(i)];
          if (i >= 1) sum = join(sum, alpha[static_cast<size_t>(i - 1)]);
          if (i >= 2 && label(i) != p.blank && label(i) != label(i - 2))
            sum = join(sum, alpha[static_cast<size_t>(i - 2)]);
          next[static_cast<size_t>(i)] = sum + said(t, i);
        }
        std::swap(alpha, next);
      }
      const double end = alpha[static_cast<size_t>(states - 1)];
      y[0][b] = -(states > 1 ? join(end, alpha[static_cast<size_t>(states - 2)]) : end);
    }
  }

  static std::vector<Sample> samples() {
    return {{"speech",
             {{{DType::f32, {3, 6, 4}}, -3, 0},
              {{DType::i32, {3, 3}}, 1, 3},
              {{DType::i32, {3}}, 5, 6},
              {{DType::i32, {3}}, 0, 3}},
             make_params(Params{0})}};
  }
};

}  // namespace

constinit const OpDef ctc_loss_op = make_op<CtcLoss>();

Value ctc_loss(Value log_probabilities, Value labels, Value frames, Value lengths, int64_t blank) {
  const Value in[] = {log_probabilities, labels, frames, lengths};
  return labels.builder().add1(ctc_loss_op, in, CtcLossParams{blank});
}

}  // namespace lathe
