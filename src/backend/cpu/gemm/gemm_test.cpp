#include "backend/cpu/gemm/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "backend/cpu/gemm/gemm_plan.h"
#include "backend/cpu/isa.h"
#include "base/error.h"
#include "base/philox.h"

namespace lathe::cpu {
namespace {

template <class T = float>
std::vector<T> random_values(int64_t n, uint32_t stream) {
  const CounterRng rng(7, stream, 0, 0);
  std::vector<T> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    values[static_cast<size_t>(i)] = static_cast<T>(rng.uniform(static_cast<uint64_t>(i)) - 0.5f);
  return values;
}

struct AlignedBytes {
  explicit AlignedBytes(int64_t bytes) : storage(static_cast<size_t>(bytes) + 64) {
    void* p = storage.data();
    size_t space = storage.size();
    span = {static_cast<std::byte*>(std::align(64, static_cast<size_t>(bytes), p, space)), static_cast<size_t>(bytes)};
  }
  std::vector<std::byte> storage;
  std::span<std::byte> span;
};

template <class T>
void run(ThreadPool& pool, GemmArgs<T> args) {
  AlignedBytes workspace(gemm_workspace(args.shape, pool.threads()));
  args.workspace = workspace.span;
  gemm(pool, args);
}

template <class T>
std::vector<T> multiply(ThreadPool& pool, const GemmShape& s, const std::vector<T>& a, bool ta, const std::vector<T>& b,
                        bool tb, const Epilogue<T>& e = {}) {
  std::vector<T> c(static_cast<size_t>(s.batch * s.m * s.n), T(NAN));
  GemmArgs<T> args;
  args.shape = s;
  args.a = lhs(a.data(), ta ? s.m : s.k, ta, s.m * s.k);
  args.b = rhs(b.data(), tb ? s.k : s.n, tb, s.k * s.n);
  args.c = {.data = c.data(), .ld = s.n, .batch_stride = s.m * s.n};
  args.epilogue = e;
  run(pool, args);
  return c;
}

// In the units of error(): the rounding of a chain of some hundred additions; one wrong element is thousands.
constexpr double kTolerance = 16;

// Largest difference to a plain f64 loop, in units of sqrt(k) times the rounding of one product of values below 1/2.
template <class T>
double error(const GemmShape& s, const std::vector<T>& a, bool ta, const std::vector<T>& b, bool tb,
             const std::vector<T>& c) {
  double worst = 0;
  for (int64_t batch = 0; batch < s.batch; ++batch) {
    const T* x = a.data() + batch * s.m * s.k;
    const T* y = b.data() + batch * s.k * s.n;
    for (int64_t i = 0; i < s.m; ++i) {
      for (int64_t j = 0; j < s.n; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < s.k; ++p)
          sum += static_cast<double>(x[ta ? p * s.m + i : i * s.k + p]) *
                 static_cast<double>(y[tb ? j * s.k + p : p * s.n + j]);
        const double difference =
            std::abs(sum - static_cast<double>(c[static_cast<size_t>((batch * s.m + i) * s.n + j)]));
        if (!(difference <= worst)) worst = difference;  // keeps a NaN
      }
    }
  }
  return worst / (std::sqrt(static_cast<double>(s.k) + 1) * 0.25 * std::numeric_limits<T>::epsilon());
}

class EachIsa : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { force_isa(GetParam()); }
  void TearDown() override { force_isa(""); }
};

std::vector<std::string> isa_names() {
  std::vector<std::string> names;
  for (const std::string_view name : available_isas()) names.emplace_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Gemm, EachIsa, ::testing::ValuesIn(isa_names()), [](const auto& info) { return info.param; });

TEST_P(EachIsa, IsActive) { EXPECT_EQ(active_isa(), GetParam()); }

TEST_P(EachIsa, EqualsPlainLoop) {
  ThreadPool pool(2);
  const int64_t sizes[] = {1, 2, 7, 13, 16, 47, 49, 100};
  uint32_t stream = 0;
  for (const int64_t m : sizes) {
    for (const int64_t n : sizes) {
      for (const int64_t k : {0, 1, 3, 15, 64, 401, 900}) {
        const GemmShape s{.m = m, .n = n, .k = k};
        const auto a = random_values(m * k, ++stream), b = random_values(k * n, ++stream);
        for (const bool ta : {false, true})
          for (const bool tb : {false, true})
            ASSERT_LT(error(s, a, ta, b, tb, multiply(pool, s, a, ta, b, tb)), kTolerance)
                << m << ' ' << n << ' ' << k << ta << tb;
      }
    }
  }
}

// Shapes that reach every way of cutting the work: shared A, shared B, both, k blocks as tasks, cut shared operands.
TEST_P(EachIsa, EqualsPlainLoopLarge) {
  ThreadPool pool(4);
  for (const GemmShape& s : {GemmShape{.m = 515, .n = 130, .k = 333}, GemmShape{.m = 77, .n = 1029, .k = 850},
                             GemmShape{.m = 30, .n = 70, .k = 2500}, GemmShape{.m = 9, .n = 33, .k = 20011},
                             GemmShape{.m = 33, .n = 21, .k = 8000}}) {
    const auto a = random_values(s.m * s.k, 1), b = random_values(s.k * s.n, 2);
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        EXPECT_LT(error(s, a, ta, b, tb, multiply(pool, s, a, ta, b, tb)), kTolerance)
            << s.m << ' ' << s.n << ' ' << s.k << ta << tb;
  }
}

TEST_P(EachIsa, BitsDoNotDependOnThreads) {
  ThreadPool one(1), two(2), eight(8);
  for (const GemmShape& s :
       {GemmShape{.m = 128, .n = 512, .k = 784}, GemmShape{.m = 512, .n = 100, .k = 1000},
        GemmShape{.m = 40, .n = 50, .k = 9999}, GemmShape{.m = 70, .n = 90, .k = 700},
        GemmShape{.m = 65, .n = 33, .k = 64, .batch = 12}, GemmShape{.m = 300, .n = 700, .k = 100, .batch = 2}}) {
    const auto a = random_values(s.batch * s.m * s.k, 1), b = random_values(s.batch * s.k * s.n, 2);
    const auto c = multiply(one, s, a, false, b, true);
    EXPECT_EQ(c, multiply(two, s, a, false, b, true)) << s.m;
    EXPECT_EQ(c, multiply(eight, s, a, false, b, true)) << s.m;
  }
}

TEST_P(EachIsa, BitsOfARowDoNotDependOnOtherRowsOrColumns) {
  ThreadPool pool(2);
  const int64_t k = 1234;
  const auto a = random_values(600 * k, 1), b = random_values(600 * k, 2);
  const auto all = multiply(pool, {.m = 600, .n = 600, .k = k}, a, false, b, true);
  for (const int64_t m : {1, 9, 130}) {
    for (const int64_t n : {1, 17, 200}) {
      const auto part = multiply(pool, {.m = m, .n = n, .k = k}, a, false, b, true);
      for (int64_t i = 0; i < m; ++i)
        ASSERT_EQ(0, std::memcmp(&part[static_cast<size_t>(i * n)], &all[static_cast<size_t>(i * 600)],
                                 static_cast<size_t>(n) * sizeof(float)));
    }
  }
}

// C as a part of a wider matrix: what lies right of it is not written, and not read either when k blocks are added.
TEST_P(EachIsa, LeavesMemoryRightOfCAlone) {
  ThreadPool pool(2);
  for (const GemmShape& s : {GemmShape{.m = 37, .n = 10, .k = 700}, GemmShape{.m = 19, .n = 3, .k = 20},
                             GemmShape{.m = 70, .n = 117, .k = 600}, GemmShape{.m = 150, .n = 29, .k = 900}}) {
    const int64_t ld = s.n + 5;
    const auto a = random_values(s.m * s.k, 1), b = random_values(s.k * s.n, 2);
    const auto expected = multiply(pool, s, a, false, b, true);
    std::vector<float> c(static_cast<size_t>(s.m * ld), NAN);
    GemmArgs<float> args;
    args.shape = s;
    args.a = lhs(a.data(), s.k);
    args.b = rhs(b.data(), s.k, true);
    args.c = {.data = c.data(), .ld = ld};
    run(pool, args);
    for (int64_t i = 0; i < s.m; ++i)
      for (int64_t j = 0; j < ld; ++j) {
        const float got = c[static_cast<size_t>(i * ld + j)];
        if (j < s.n)
          ASSERT_EQ(got, expected[static_cast<size_t>(i * s.n + j)]) << s.n << ' ' << i << ' ' << j;
        else
          ASSERT_TRUE(std::isnan(got)) << s.n << ' ' << i << ' ' << j;
      }
  }
}

TEST_P(EachIsa, Batched) {
  ThreadPool pool(2);
  for (const GemmShape& s :
       {GemmShape{.m = 30, .n = 40, .k = 50, .batch = 7}, GemmShape{.m = 256, .n = 256, .k = 64, .batch = 3},
        GemmShape{.m = 64, .n = 1500, .k = 70, .batch = 2}}) {
    const auto a = random_values(s.batch * s.m * s.k, 1), b = random_values(s.batch * s.k * s.n, 2);
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        EXPECT_LT(error(s, a, ta, b, tb, multiply(pool, s, a, ta, b, tb)), kTolerance);
  }
}

// Attention heads as they lie in [batch, time, head, depth]: two levels of batch, no copies.
TEST_P(EachIsa, BatchOfHeads) {
  ThreadPool pool(2);
  const int64_t batch = 3, time = 20, heads = 4, depth = 16;
  const auto q = random_values(batch * time * heads * depth, 1), k = random_values(batch * time * heads * depth, 2);
  std::vector<float> c(static_cast<size_t>(batch * heads * time * time));
  GemmArgs<float> args;
  args.shape = {.m = time, .n = time, .k = depth, .batch = batch * heads, .batch_inner = heads};
  args.a = lhs(q.data(), heads * depth, false, time * heads * depth, depth);
  args.b = rhs(k.data(), heads * depth, true, time * heads * depth, depth);
  args.c = {.data = c.data(), .ld = time, .batch_stride = heads * time * time, .inner_stride = time * time};
  run(pool, args);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < time; ++i)
        for (int64_t j = 0; j < time; ++j) {
          double sum = 0;
          for (int64_t p = 0; p < depth; ++p)
            sum += static_cast<double>(q[static_cast<size_t>(((b * time + i) * heads + h) * depth + p)]) *
                   k[static_cast<size_t>(((b * time + j) * heads + h) * depth + p)];
          EXPECT_NEAR(sum, c[static_cast<size_t>(((b * heads + h) * time + i) * time + j)], 1e-5);
        }
}

struct PostLog {
  std::vector<int> seen;
  int64_t n;
};

template <class T>
void check_epilogue(const GemmShape& s) {
  ThreadPool pool(2);
  const auto a = random_values<T>(s.m * s.k, 1), b = random_values<T>(s.k * s.n, 2);
  const auto bias_col = random_values<T>(s.n, 3), bias_row = random_values<T>(s.m, 4),
             residual = random_values<T>(s.m * s.n, 5);
  const auto plain = multiply(pool, s, a, false, b, false);
  PostLog log{std::vector<int>(static_cast<size_t>(s.m * s.n)), s.n};
  Epilogue<T> e;
  e.bias_col = bias_col.data();
  e.bias_row = bias_row.data();
  e.residual = residual.data();
  e.relu = true;
  e.context = &log;
  e.post = [](void* context, T* c_row, int64_t row, int64_t col, int64_t n) {
    auto* l = static_cast<PostLog*>(context);
    for (int64_t j = 0; j < n; ++j) {
      ++l->seen[static_cast<size_t>(row * l->n + col + j)];
      c_row[j] = c_row[j] * 2 + static_cast<T>(row);
    }
  };
  const auto c = multiply(pool, s, a, false, b, false, e);
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      const auto at = static_cast<size_t>(i * s.n + j);
      const T v = plain[at] + bias_col[static_cast<size_t>(j)] + bias_row[static_cast<size_t>(i)] + residual[at];
      ASSERT_EQ(c[at], (v < 0 ? 0 : v) * 2 + static_cast<T>(i)) << i << ' ' << j;
      ASSERT_EQ(log.seen[at], 1);
    }
  }
}

TEST_P(EachIsa, Epilogue) {
  for (const GemmShape& s : {GemmShape{.m = 20, .n = 37, .k = 500}, GemmShape{.m = 300, .n = 600, .k = 900},
                             GemmShape{.m = 600, .n = 310, .k = 70}, GemmShape{.m = 20, .n = 30, .k = 6000}})
    check_epilogue<float>(s);
}

TEST_P(EachIsa, ReluKeepsNan) {
  ThreadPool pool(1);
  const std::vector<float> a{NAN, 1.0f}, b(20, -1.0f);
  Epilogue<float> e;
  e.relu = true;
  const auto c = multiply(pool, {.m = 2, .n = 20, .k = 1}, a, false, b, false, e);
  EXPECT_TRUE(std::isnan(c[0]));
  EXPECT_TRUE(std::isnan(c[19]));
  EXPECT_EQ(c[20], 0.0f);
}

TEST(Gemm, DoubleEqualsPlainLoop) {
  ThreadPool pool(2);
  for (const GemmShape& s : {GemmShape{.m = 17, .n = 70, .k = 133}, GemmShape{.m = 5, .n = 3, .k = 65, .batch = 3}}) {
    const auto a = random_values<double>(s.batch * s.m * s.k, 1), b = random_values<double>(s.batch * s.k * s.n, 2);
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        EXPECT_LT(error(s, a, ta, b, tb, multiply(pool, s, a, ta, b, tb)), kTolerance);
  }
  check_epilogue<double>({.m = 20, .n = 100, .k = 90});
}

TEST(Gemm, NothingToDo) {
  ThreadPool pool(2);
  for (const GemmShape& s : {GemmShape{.m = 0, .n = 3, .k = 4}, GemmShape{.m = 3, .n = 0, .k = 4},
                             GemmShape{.m = 3, .n = 3, .k = 4, .batch = 0}, GemmShape{.m = 0, .n = 0, .k = 0}})
    EXPECT_TRUE(multiply<float>(pool, s, {}, false, {}, false).empty());
}

TEST(Gemm, RejectsSmallWorkspace) {
  ThreadPool pool(1);
  std::vector<float> x(100 * 100);
  GemmArgs<float> args;
  args.shape = {.m = 100, .n = 100, .k = 100};
  args.a = lhs(x.data(), 100);
  args.b = rhs(x.data(), 100);
  args.c = {.data = x.data(), .ld = 100};
  EXPECT_THROW(gemm(pool, args), InternalError);
}

TEST(Cut, TasksCoverAllInWholeUnitsAndEndInShortPieces) {
  for (const int64_t total : {1, 15, 16, 100, 512, 784, 2048, 50257})
    for (const int64_t longest : {48, 352, 10000})
      for (const int64_t ways : {1, 2, 3, 64}) {
        SCOPED_TRACE(testing::Message() << total << " longest " << longest << " ways " << ways);
        const Cut cut = Cut::tasks(total, longest, ways, 16, 32);
        int64_t at = 0;
        for (int64_t i = 0; i < cut.count(); ++i) {
          ASSERT_EQ(cut.begin(i), at);
          ASSERT_GT(cut.size(i), 0);
          ASSERT_LE(cut.size(i), cut.longest());
          ASSERT_TRUE(cut.size(i) % 16 == 0 || i + 1 == cut.count());
          at += cut.size(i);
        }
        ASSERT_EQ(at, total);
        ASSERT_LE(cut.longest(), longest);
        if (ways > 1 && total >= 64 * ways) {
          // Two cores of which one has half the speed: who is free takes the next piece.
          std::vector<int64_t> free_at(static_cast<size_t>(ways), 0);
          for (int64_t i = 0; i < cut.count(); ++i) {
            const auto worker = std::ranges::min_element(free_at);
            *worker += cut.size(i) * (worker == free_at.begin() ? 2 : 1);
          }
          const double ideal = static_cast<double>(total) / (static_cast<double>(ways) - 0.5);
          const auto most = static_cast<double>(*std::ranges::max_element(free_at));
          EXPECT_LE(most, 1.3 * ideal + 64);
        }
      }
}

TEST(Isa, RejectsUnknownName) {
  EXPECT_THROW(force_isa("mmx"), UserError);
  EXPECT_EQ(active_isa(), available_isas().front());
}

}  // namespace
}  // namespace lathe::cpu
