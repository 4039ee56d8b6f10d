#include "backend/cpu/gemm_plan.h"

#include <algorithm>
#include <limits>

#include "base/checked.h"

namespace lathe::cpu {

namespace {

// Floats of an operand that is packed once for all threads: a part of the last-level cache.
constexpr int64_t kSharedFloats = 4 << 20;
// Below this a second thread costs more than it brings (about 4 microseconds of work).
constexpr double kFlopsPerThread = 0.6e6;
// Uses of an element from which it is worth packing in each thread, instead of once for all: then it lies in the cache
// of the core that needs it.
constexpr int64_t kUsesOfOwn = 64;

// Of the shortest tasks. Fewer rows would read the panels of B from farther caches for too little work.
constexpr int64_t kRowsOfTask = 32;
constexpr double kFlopsOfTask = 0.6e6;

int64_t aligned(int64_t floats) { return round_up(floats, 16); }

// Cuts `size` into a number of equal pieces that is a multiple of `ways`, none longer than `longest`.
int64_t piece(int64_t size, int64_t longest, int64_t ways, int64_t unit) {
  const int64_t count = std::max<int64_t>(1, round_up(ceil_div(size, std::max(longest, unit)), ways));
  return std::min(round_up(ceil_div(size, count), unit), round_up(size, unit));
}

// How much of a shared operand (rows x k) is packed at a time: all, or part of the rows, or part of k.
void cut_shared(int64_t rows, int64_t unit, GemmPlan& plan, int64_t& rows_at_a_time) {
  const int64_t k = plan.kc * plan.k_blocks;
  rows_at_a_time = rows;
  plan.ks_blocks = plan.k_blocks;
  if (rows * k <= kSharedFloats) return;
  const int64_t fitting_rows = kSharedFloats / k / unit * unit;
  if (fitting_rows >= 1024) {
    rows_at_a_time = piece(rows, fitting_rows, 1, unit);
    return;
  }
  rows_at_a_time = piece(rows, std::max(kSharedFloats / (4 * plan.kc), unit), 1, unit);
  const int64_t blocks = std::max<int64_t>(1, kSharedFloats / (std::min(rows, rows_at_a_time) * plan.kc));
  plan.ks_blocks = ceil_div(plan.k_blocks, ceil_div(plan.k_blocks, blocks));
}

}  // namespace

Cut Cut::even(int64_t total, int64_t step) { return {total, 1, step, ceil_div(total, std::max<int64_t>(step, 1)), 0}; }

Cut Cut::last_longer(int64_t total, int64_t step) {
  return {total, 1, step, std::max<int64_t>(1, total / std::max<int64_t>(step, 1)), 0};
}

Cut Cut::tasks(int64_t total, int64_t longest, int64_t ways, int64_t unit, int64_t shortest) {
  // Each thread gets long pieces for this part of an equal share; the rest goes to who is free.
  constexpr double kLongPart = 0.6;
  const auto share = static_cast<int64_t>(kLongPart * static_cast<double>(total) / static_cast<double>(ways));
  if (ways == 1 || share < shortest) return even(total, piece(total, longest, ways, unit));
  const int64_t step = std::max(std::min(longest, share) / unit * unit, unit);
  const int64_t full = std::max<int64_t>(1, (total - 2 * ways * step / 3) / (ways * step)) * ways;
  const int64_t rest = total - full * step;
  const int64_t short_step = std::min(step, std::max(shortest, step / 4));
  return {total, unit, step, full, std::min(round_up(ceil_div(rest, short_step), ways), ceil_div(rest, unit))};
}

int64_t Cut::begin(int64_t i) const {
  if (i >= count()) return total_;
  if (i <= full_) return i * step_;
  const int64_t units = ceil_div(total_ - full_ * step_, unit_), at = i - full_;
  return full_ * step_ + (units / tail_ * at + std::min(at, units % tail_)) * unit_;
}

int64_t Cut::longest() const {
  int64_t n = 0;
  for (const int64_t i : {int64_t{0}, full_ - 1, full_, count() - 1})
    if (i >= 0 && i < count()) n = std::max(n, size(i));
  return n;
}

GemmPlan plan_gemm(const GemmShape& s, int threads, const Geometry& g, InPlace in_place) {
  GemmPlan plan(s);
  plan.k_blocks = s.k <= g.kc_alone ? 1 : ceil_div(s.k, g.kc);
  plan.kc = std::max<int64_t>(1, ceil_div(s.k, plan.k_blocks));
  const double flops = 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  const double total = flops * static_cast<double>(s.batch);
  plan.threads = static_cast<int>(std::clamp<double>(total / kFlopsPerThread, 1, std::max(threads, 1)));
  const int64_t ways = plan.threads;
  const auto enough = [&](int64_t least, int64_t other) {
    const double flops_each = 2.0 * static_cast<double>(other) * static_cast<double>(s.k);
    return std::max(least, static_cast<int64_t>(std::min(kFlopsOfTask / flops_each, 1e9)));
  };
  const int64_t few_rows = enough(kRowsOfTask, s.n), few_cols = enough(g.nr(), s.m);
  const int64_t rows_max = std::max(g.mr, g.block / plan.kc / g.mr * g.mr);
  const int64_t cols_max = std::max(g.nr(), g.block / plan.kc / g.nr() * g.nr());
  plan.mc = rows_max;
  plan.ms = s.m;
  plan.ns = s.n;
  plan.ks_blocks = plan.k_blocks;

  const bool rows_feed = s.m >= ways * 2 * g.mr, cols_feed = s.n >= ways * g.nr();
  // Many small products, or one that fits the caches: a task packs what it needs. A matrix is cut further only when
  // there are fewer of them than threads; then each thread packs all of the operand that is not cut.
  const bool small = s.m <= rows_max && s.n <= 2 * cols_max;
  const int64_t cuts = ceil_div(ways, std::max<int64_t>(1, s.batch));
  const bool cut_cols = in_place.a == in_place.b ? s.n > s.m : in_place.a && s.n >= cuts * g.lanes;
  const bool nothing_twice = cuts == 1 || (cut_cols ? in_place.a : in_place.b);
  const bool feeds = cuts == 1 || (cut_cols ? s.n >= cuts * g.nr() : s.m >= cuts * 2 * g.mr);
  // Partial sums that cost little beside reading the operands, and k blocks enough to share them out evenly.
  const bool deep = ways > 1 && s.batch == 1 && plan.k_blocks >= 4 * ways && 2 * s.m * s.n <= (s.m + s.n) * plan.kc;
  if (!deep && small && feeds && (nothing_twice || s.batch > 1 || (cut_cols ? s.n : s.m) >= cuts * kUsesOfOwn)) {
    plan.mode = GemmPlan::Mode::batches;
    // Where a task packs all of an operand, each thread gets one.
    constexpr int64_t kNoShort = std::numeric_limits<int64_t>::max();
    if (cut_cols)
      plan.cols = Cut::tasks(s.n, 2 * cols_max, cuts, g.lanes, nothing_twice ? few_cols : kNoShort);
    else
      plan.rows = Cut::tasks(s.m, rows_max, cuts, g.mr, nothing_twice ? few_rows : kNoShort);
  } else if (ways > 1 && plan.k_blocks >= 2 * ways &&
             (deep || (!rows_feed && !cols_feed) || 8 * s.m * s.n <= (s.m + s.n) * plan.kc)) {
    // So little output that cutting it would starve threads, or that its partial sums cost next to nothing.
    plan.mode = GemmPlan::Mode::k_split;
    plan.ks_blocks = std::min(plan.k_blocks, 8 * ways);
    plan.partial = aligned(s.m * s.n * plan.ks_blocks);
  } else {
    // Share the smaller operand and let each task pack its own part of the larger one: every element is packed once.
    // Where that dimension has too little for all threads, share both and cut C both ways.
    if (rows_feed && (s.m >= s.n || !cols_feed)) {
      plan.share_b = true;
      cut_shared(s.n, g.nr(), plan, plan.ns);
      plan.rows = Cut::tasks(s.m, rows_max, ways, g.mr, few_rows);
    } else if (cols_feed) {
      plan.share_a = true;
      cut_shared(s.m, g.mr, plan, plan.ms);
      plan.cols = Cut::tasks(s.n, cols_max, ways, g.lanes, few_cols);
    } else {
      plan.share_a = plan.share_b = true;
      cut_shared(std::max(s.m, s.n), g.nr(), plan, s.m > s.n ? plan.ms : plan.ns);
    }
  }
  const int64_t a_rows = round_up(plan.share_a ? plan.ms : plan.rows.longest(), g.mr);
  const int64_t b_rows = round_up(plan.share_b ? plan.ns : plan.cols.longest(), g.lanes);
  (plan.share_a ? plan.shared_a : plan.own_a) = aligned(a_rows * plan.kc * (plan.share_a ? plan.ks_blocks : 1));
  (plan.share_b ? plan.shared_b : plan.own_b) = aligned(b_rows * plan.kc * (plan.share_b ? plan.ks_blocks : 1));
  return plan;
}

int64_t gemm_workspace(const GemmShape& shape, int threads) {
  int64_t floats = 0;
  for (const Geometry& g : {kGeometry128, kGeometry256, kGeometry512})
    for (const bool a : {false, true})
      for (const bool b : {false, true})
        floats = std::max(floats, plan_gemm(shape, threads, g, {.a = a, .b = b}).floats());
  return floats * static_cast<int64_t>(sizeof(float));
}

}  // namespace lathe::cpu
