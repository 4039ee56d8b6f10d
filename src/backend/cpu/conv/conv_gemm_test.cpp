#include "backend/cpu/conv/conv_gemm.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/conv/winograd.h"
#include "backend/cpu/isa.h"
#include "base/philox.h"

namespace lathe::cpu {
namespace {

ConvGeometry make(int64_t n, int64_t h, int64_t w, int64_t c, int64_t o, int64_t kh, int64_t kw, int64_t stride = 1,
                  int64_t pad = 0, int64_t dilation = 1, int64_t groups = 1) {
  return conv_geometry({n, h, w, c}, {o, kh, kw, c / groups},
                       {.stride_h = stride,
                        .stride_w = stride,
                        .pad_top = pad,
                        .pad_bottom = pad,
                        .pad_left = pad,
                        .pad_right = pad,
                        .dilation_h = dilation,
                        .dilation_w = dilation,
                        .groups = groups});
}

std::string name(const ConvGeometry& s) {
  return fmt::format("n{} {}x{} c{} o{} k{}x{} s{},{} p{},{} d{},{} g{}", s.batch, s.in_h, s.in_w, s.in_c, s.out_c,
                     s.kernel_h, s.kernel_w, s.stride_h, s.stride_w, s.pad_top, s.pad_left, s.dilation_h, s.dilation_w,
                     s.groups);
}

std::vector<ConvGeometry> shapes() {
  std::vector<ConvGeometry> all = {
      make(2, 7, 9, 3, 5, 3, 3, 1, 1),
      make(1, 8, 8, 16, 20, 1, 1),
      make(2, 8, 10, 4, 6, 1, 1, 2),
      make(2, 13, 11, 3, 8, 7, 7, 2, 3),
      make(1, 9, 9, 5, 7, 3, 3, 1, 2, 2),
      make(1, 12, 13, 4, 4, 3, 3, 2, 2, 2),
      make(2, 11, 10, 2, 3, 4, 4, 3, 1),
      make(1, 10, 10, 6, 9, 3, 3, 1, 1, 1, 3),
      make(2, 9, 9, 8, 8, 3, 3, 2, 1, 1, 2),
      make(2, 8, 9, 12, 12, 3, 3, 1, 1, 1, 12),
      make(1, 9, 9, 5, 10, 3, 3, 2, 1, 1, 5),
      make(4, 30, 30, 1, 32, 3, 3, 1, 1),
      make(4, 16, 16, 64, 64, 3, 3, 1, 1),
      make(1, 5, 5, 2, 2, 2, 2, 4),
      make(1, 6, 6, 3, 50, 5, 5, 1, 4),
      make(3, 14, 15, 16, 24, 3, 3, 1, 1),
      make(2, 15, 30, 8, 40, 3, 3, 2, 1),
      make(2, 20, 20, 24, 18, 5, 5, 1, 2, 1, 3),
      make(1, 30, 29, 32, 20, 3, 3, 1, 2, 2),
      make(2, 16, 16, 40, 300, 3, 3, 1, 1),
      make(1, 17, 17, 3, 4, 3, 3, 4, 1, 3),
      make(3, 1, 40, 7, 9, 1, 5, 2, 0),
      // depthwise: whole vectors and parts of them, more taps than are held at once
      make(2, 15, 14, 40, 40, 3, 3, 2, 1, 1, 40),
      make(1, 11, 12, 21, 21, 7, 7, 1, 3, 1, 21),
      make(1, 12, 13, 33, 33, 3, 3, 2, 2, 2, 33),
      make(1, 6, 5, 3, 9, 7, 7, 1, 3, 1, 3),
  };
  ConvGeometry odd = make(2, 9, 12, 4, 6, 3, 5, 1, 1);  // different numbers along the axes, padding on one side only
  odd.stride_w = 3;
  odd.dilation_h = 2;
  odd.pad_left = 0;
  odd.out_h = (9 + 1 + 2 - 4 - 1) / 1 + 1;
  odd.out_w = (12 + 0 + 3 - 4 - 1) / 3 + 1;
  all.push_back(odd);
  return all;
}

// Odd and even sizes, padding of every kind, channels that fill vectors and panels or do not, k in several blocks,
// images smaller than a tile.
std::vector<ConvGeometry> winograd_shapes() {
  std::vector<ConvGeometry> all = {make(3, 9, 8, 64, 64, 3, 3, 1, 1),   make(2, 6, 7, 67, 101, 3, 3, 1, 0),
                                   make(1, 5, 5, 300, 80, 3, 3, 1, 2),  make(1, 4, 6, 80, 520, 3, 3, 1, 1),
                                   make(20, 2, 2, 64, 70, 3, 3, 1, 1),  make(2, 1, 1, 64, 64, 3, 3, 1, 1),
                                   make(2, 16, 15, 64, 64, 3, 3, 1, 1), make(1, 3, 3, 64, 65, 3, 3, 1, 3)};
  ConvGeometry odd = make(2, 8, 9, 64, 66, 3, 3, 1, 1);  // padding on one side only
  odd.pad_left = 0;
  odd.out_w = 8;
  all.push_back(odd);
  return all;
}

std::vector<double> random_values(int64_t n, uint32_t stream) {
  const CounterRng rng(9, stream, 0, 0);
  std::vector<double> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) values[i] = rng.uniform(i) - 0.5f;
  return values;
}

// The definition: calls f(x index, w index, y index) for every product.
template <class F>
void for_each_product(const ConvGeometry& s, F&& f) {
  for (int64_t n = 0; n < s.batch; ++n)
    for (int64_t i = 0; i < s.out_h; ++i)
      for (int64_t j = 0; j < s.out_w; ++j)
        for (int64_t o = 0; o < s.out_c; ++o)
          for (int64_t ky = 0; ky < s.kernel_h; ++ky)
            for (int64_t kx = 0; kx < s.kernel_w; ++kx) {
              const int64_t y = i * s.stride_h - s.pad_top + ky * s.dilation_h,
                            x = j * s.stride_w - s.pad_left + kx * s.dilation_w;
              if (y < 0 || y >= s.in_h || x < 0 || x >= s.in_w) continue;
              for (int64_t c = 0; c < s.group_in; ++c)
                f(static_cast<size_t>(((n * s.in_h + y) * s.in_w + x) * s.in_c + o / s.group_out * s.group_in + c),
                  static_cast<size_t>(((o * s.kernel_h + ky) * s.kernel_w + kx) * s.group_in + c),
                  static_cast<size_t>(((n * s.out_h + i) * s.out_w + j) * s.out_c + o));
            }
}

struct Workspace {
  explicit Workspace(int64_t bytes) : storage(static_cast<size_t>(bytes) + 64) {
    void* p = storage.data();
    size_t space = storage.size();
    span = {static_cast<std::byte*>(std::align(64, static_cast<size_t>(bytes), p, space)), static_cast<size_t>(bytes)};
  }
  std::vector<std::byte> storage;
  std::span<std::byte> span;
};

template <class T>
struct Results {
  std::vector<T> y, dx, dw;
  friend bool operator==(const Results&, const Results&) = default;
};

template <class T>
Results<T> run(const ConvGeometry& s, int threads) {
  ThreadPool pool(threads);
  const auto convert = [](const std::vector<double>& v) { return std::vector<T>(v.begin(), v.end()); };
  const auto x = convert(random_values(s.batch * s.in_h * s.in_w * s.in_c, 1));
  const auto w = convert(random_values(s.out_c * s.taps() * s.group_in, 2));
  const auto dy = convert(random_values(s.pixels() * s.out_c, 3));
  Results<T> r{std::vector<T>(dy.size(), T(NAN)), std::vector<T>(x.size(), T(NAN)), std::vector<T>(w.size(), T(NAN))};
  Workspace forward(conv2d_workspace<T>(ConvPass::forward, s, threads));
  conv2d_forward<T>(pool, s, r.y.data(), x.data(), w.data(), {}, forward.span);
  Workspace dx(conv2d_workspace<T>(ConvPass::dx, s, threads));
  conv2d_dx<T>(pool, s, r.dx.data(), dy.data(), w.data(), dx.span);
  Workspace dw(conv2d_workspace<T>(ConvPass::dw, s, threads));
  conv2d_dw<T>(pool, s, r.dw.data(), x.data(), dy.data(), dw.span);
  return r;
}

// As run<float>, by Winograd; he has no dw.
Results<float> run_winograd(const ConvGeometry& s, int threads) {
  ThreadPool pool(threads);
  const auto convert = [](const std::vector<double>& v) { return std::vector<float>(v.begin(), v.end()); };
  const auto x = convert(random_values(s.batch * s.in_h * s.in_w * s.in_c, 1)),
             w = convert(random_values(s.out_c * 9 * s.in_c, 2)), dy = convert(random_values(s.pixels() * s.out_c, 3));
  Results<float> r{std::vector<float>(dy.size(), NAN), std::vector<float>(x.size(), NAN), {}};
  EXPECT_EQ(winograd_declines(ConvPass::forward, s), "") << name(s);
  Workspace forward(winograd_workspace(ConvPass::forward, s, threads));
  winograd_forward(pool, s, r.y.data(), x.data(), w.data(), {}, forward.span);
  Workspace dx(winograd_workspace(ConvPass::dx, s, threads));
  winograd_dx(pool, s, r.dx.data(), dy.data(), w.data(), dx.span);
  return r;
}

Results<double> definition(const ConvGeometry& s) {
  const auto x = random_values(s.batch * s.in_h * s.in_w * s.in_c, 1),
             w = random_values(s.out_c * s.taps() * s.group_in, 2), dy = random_values(s.pixels() * s.out_c, 3);
  Results<double> r{std::vector<double>(dy.size()), std::vector<double>(x.size()), std::vector<double>(w.size())};
  for_each_product(s, [&](size_t xi, size_t wi, size_t yi) {
    r.y[yi] += x[xi] * w[wi];
    r.dx[xi] += dy[yi] * w[wi];
    r.dw[wi] += x[xi] * dy[yi];
  });
  return r;
}

template <class T>
double difference(const std::vector<T>& a, const std::vector<double>& b) {
  double worst = 0, scale = 1;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - b[i]);
    if (!(d <= worst)) worst = d;  // keeps a NaN
    scale = std::max(scale, std::abs(b[i]));
  }
  return worst / scale;
}

class ConvEachIsa : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { force_isa(GetParam()); }
  void TearDown() override { force_isa(""); }
};

std::vector<std::string> isa_names() {
  std::vector<std::string> names;
  for (const std::string_view isa : available_isas()) names.emplace_back(isa);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Conv, ConvEachIsa, ::testing::ValuesIn(isa_names()),
                         [](const auto& info) { return info.param; });

TEST_P(ConvEachIsa, EqualsDefinition) {
  for (const ConvGeometry& s : shapes()) {
    const auto got = run<float>(s, 2);
    const auto want = definition(s);
    EXPECT_LT(difference(got.y, want.y), 2e-6) << name(s);
    EXPECT_LT(difference(got.dx, want.dx), 2e-6) << name(s);
    EXPECT_LT(difference(got.dw, want.dw), 2e-6) << name(s);
  }
}

TEST_P(ConvEachIsa, BitsDoNotDependOnThreads) {
  for (const ConvGeometry& s : shapes()) {
    const auto one = run<float>(s, 1);
    EXPECT_EQ(one, run<float>(s, 2)) << name(s);
    EXPECT_EQ(one, run<float>(s, 8)) << name(s);
  }
}

TEST_P(ConvEachIsa, WinogradEqualsDefinition) {
  for (const ConvGeometry& s : winograd_shapes()) {
    const auto got = run_winograd(s, 2);
    const auto want = definition(s);
    EXPECT_LT(difference(got.y, want.y), 2e-6) << name(s);
    EXPECT_LT(difference(got.dx, want.dx), 2e-6) << name(s);
    EXPECT_EQ(got, run_winograd(s, 1)) << name(s);
    EXPECT_EQ(got, run_winograd(s, 8)) << name(s);
  }
}

TEST_P(ConvEachIsa, WinogradsBitsDoNotDependOnTheBatch) {
  const ConvGeometry whole = make(9, 7, 6, 64, 96, 3, 3, 1, 1);
  ConvGeometry first = whole;
  first.batch = 1;
  const auto all = run_winograd(whole, 2), one = run_winograd(first, 2);
  EXPECT_TRUE(std::equal(one.y.begin(), one.y.end(), all.y.begin()));
  EXPECT_TRUE(std::equal(one.dx.begin(), one.dx.end(), all.dx.begin()));
}

TEST(Conv, WinogradSaysWhyItDeclines) {
  EXPECT_NE(winograd_declines(ConvPass::dw, make(1, 8, 8, 64, 64, 3, 3, 1, 1)), "");
  for (const ConvGeometry& s :
       {make(1, 8, 8, 64, 64, 3, 1), make(1, 8, 8, 64, 64, 3, 3, 2), make(1, 8, 8, 64, 64, 3, 3, 1, 1, 2),
        make(1, 8, 8, 64, 64, 3, 3, 1, 1, 1, 2), make(1, 8, 8, 64, 10, 3, 3), make(1, 8, 8, 1025, 1024, 3, 3, 1, 1)})
    EXPECT_NE(winograd_declines(ConvPass::forward, s), "") << name(s);
}

TEST(Conv, DoubleEqualsDefinition) {
  for (const ConvGeometry& s : shapes()) {
    const auto got = run<double>(s, 2);
    const auto want = definition(s);
    EXPECT_LT(difference(got.y, want.y), 1e-13) << name(s);
    EXPECT_LT(difference(got.dx, want.dx), 1e-13) << name(s);
    EXPECT_LT(difference(got.dw, want.dw), 1e-13) << name(s);
  }
}

TEST(Conv, Epilogue) {
  for (const ConvGeometry& s : {make(2, 9, 9, 8, 12, 3, 3, 1, 1, 1, 2), make(1, 6, 7, 5, 10, 3, 3, 2, 1, 1, 5),
                                make(2, 5, 6, 64, 70, 3, 3, 1, 1)}) {
    ThreadPool pool(2);
    const auto x64 = random_values(s.batch * s.in_h * s.in_w * s.in_c, 1),
               w64 = random_values(s.out_c * s.taps() * s.group_in, 2);
    const std::vector<float> x(x64.begin(), x64.end()), w(w64.begin(), w64.end());
    std::vector<float> plain(static_cast<size_t>(s.pixels() * s.out_c)), y(plain.size()),
        bias(static_cast<size_t>(s.out_c));
    for (size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i);
    const bool winograd = winograd_declines(ConvPass::forward, s).empty();
    Workspace workspace(winograd ? winograd_workspace(ConvPass::forward, s, 2)
                                 : conv2d_workspace<float>(ConvPass::forward, s, 2));
    const auto forward = [&](std::vector<float>& to, const Epilogue<float>& e) {
      (winograd ? winograd_forward : conv2d_forward<float>)(pool, s, to.data(), x.data(), w.data(), e, workspace.span);
    };
    forward(plain, {});
    Epilogue<float> e;
    e.bias_col = bias.data();
    e.residual = plain.data();
    e.post = [](void*, float* c, int64_t row, int64_t col, int64_t n) {
      for (int64_t j = 0; j < n; ++j) c[j] += static_cast<float>(row) * 64 + static_cast<float>(col + j) * 1024;
    };
    forward(y, e);
    for (int64_t p = 0; p < s.pixels(); ++p)
      for (int64_t o = 0; o < s.out_c; ++o) {
        const auto at = static_cast<size_t>(p * s.out_c + o);
        const float sum = plain[at] + bias[static_cast<size_t>(o)] + plain[at];
        ASSERT_EQ(y[at], sum + (static_cast<float>(p) * 64 + static_cast<float>(o) * 1024)) << name(s);
      }
  }
}

}  // namespace
}  // namespace lathe::cpu
