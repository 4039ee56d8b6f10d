#include "bench/bench_op_gemm.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <thread>

#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/gemm_shapes.h"
#include "backend/cpu/isa.h"
#include "base/checked.h"
#include "base/philox.h"
#include "base/stopwatch.h"
#include "bench/bench_op_peers.h"

namespace lathe {
namespace {

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Memory = std::unique_ptr<std::byte[], Free>;

Memory page_aligned(int64_t bytes) {
  constexpr int64_t kPage = 4096;
  void* p = std::aligned_alloc(kPage, static_cast<size_t>(round_up(std::max<int64_t>(bytes, 1), kPage)));
  if (!p) throw std::bad_alloc();
  return Memory(static_cast<std::byte*>(p));
}

// Uniform in [-1, 1), repeated after a while: the numbers do not matter, but denormals and equal rows would.
void fill(float* x, int64_t n, uint32_t stream) {
  constexpr int64_t kRepeat = 65521;
  const CounterRng rng(1, stream, 0, 0);
  for (int64_t i = 0; i < n; ++i) x[i] = i < kRepeat ? 2 * rng.uniform(static_cast<uint64_t>(i)) - 1 : x[i - kRepeat];
}

class LatheGemm final : public GemmPeer {
 public:
  explicit LatheGemm(int threads) : pool_(threads) { flush_denormals(); }

  std::string prepare(const GemmProblem& p) override {
    args_.shape = {.m = p.m, .n = p.n, .k = p.k, .batch = p.batch};
    args_.a = cpu::lhs(p.a, p.trans_a ? p.m : p.k, p.trans_a, p.m * p.k);
    args_.b = cpu::rhs(p.b, p.trans_b ? p.k : p.n, p.trans_b, p.k * p.n);
    args_.c = {.data = p.c, .ld = p.n, .batch_stride = p.m * p.n};
    const int64_t bytes = cpu::gemm_workspace(args_.shape, pool_.threads());
    workspace_ = page_aligned(bytes);
    args_.workspace = {workspace_.get(), static_cast<size_t>(bytes)};
    return "";
  }
  void run() override { cpu::gemm(pool_, args_); }

 private:
  ThreadPool pool_;
  cpu::GemmArgs<float> args_;
  Memory workspace_;
};

double seconds_of(GemmPeer& peer, int64_t calls) {
  const Stopwatch start;
  for (int64_t i = 0; i < calls; ++i) peer.run();
  return start.seconds() / static_cast<double>(calls);
}

// A library that is called the wrong way would be compared on other work.
void check_equal(const std::vector<float>& expected, const float* actual, const std::string& peer,
                 const std::string& shape) {
  float scale = 0, difference = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    scale = std::max(scale, std::abs(expected[i]));
    difference = std::max(difference, std::abs(expected[i] - actual[i]));
  }
  if (!(difference <= 1e-4f * scale))
    throw DeviceError(fmt::format("bench op matmul: Lathe and {} differ by {:.2g} of the largest element on {}", peer,
                                  difference / scale, shape));
}

class Bench {
 public:
  Bench(const std::vector<GemmShapeCase>& shapes, const GemmBenchOptions& o) : options_(o) {
    out_.threads = o.threads > 0 ? o.threads : available_threads();
    out_.isa = cpu::active_isa();
    if (getloadavg(&out_.load, 1) != 1) out_.load = 0;
    add({.name = "Lathe", .version = out_.isa, .missing = "", .gemm = std::make_unique<LatheGemm>(out_.threads)});
    add(open_openblas(o.openblas, out_.threads));
    add(open_onednn(o.onednn, out_.threads));
    int64_t a = 0, b = 0, c = 0;
    for (const GemmShapeCase& s : shapes) {
      constexpr const char* kWhat = "bench op matmul: shape";
      a = std::max(a, checked_mul(checked_mul(s.batch, s.m, kWhat), s.k, kWhat));
      b = std::max(b, checked_mul(checked_mul(s.batch, s.k, kWhat), s.n, kWhat));
      c = std::max(c, checked_mul(checked_mul(s.batch, s.m, kWhat), s.n, kWhat));
    }
    a_ = page_aligned(checked_mul(a, sizeof(float), "bench op matmul")),
    b_ = page_aligned(checked_mul(b, sizeof(float), "bench op matmul"));
    c_ = page_aligned(checked_mul(c, sizeof(float), "bench op matmul"));
    fill(floats(a_), a, 1);
    fill(floats(b_), b, 2);
    measure_peak_again();
  }

  void measure_peak_again() {
    if (!options_.peak) return;
    const Peak p = measure_peak(find_backend("cpu"), {0, out_.threads});
    out_.peak_flops = std::max(out_.peak_flops, p.flops_per_second);
  }

  const GemmBench& result() const { return out_; }

  const GemmBenchRow& run(const GemmShapeCase& s) {
    GemmBenchRow row{.shape = s, .flops = 0, .seconds = {}, .declined = {}};
    const GemmProblem problem{.m = s.m,
                              .n = s.n,
                              .k = s.k,
                              .batch = s.batch,
                              .trans_a = s.trans_a,
                              .trans_b = s.trans_b,
                              .a = floats(a_),
                              .b = floats(b_),
                              .c = floats(c_)};
    row.flops = problem.flops();
    const size_t count = peers_.size();
    std::vector<int64_t> calls(count);
    std::vector<std::vector<double>> times(count);
    std::vector<float> expected;
    const auto result_size = static_cast<size_t>(s.batch * s.m * s.n);
    for (size_t i = 0; i < count; ++i) {
      row.declined.push_back(peers_[i] ? peers_[i]->prepare(problem) : "missing");
      if (!row.declined[i].empty()) continue;
      std::fill_n(floats(c_), result_size, -1.0f);
      peers_[i]->run();
      if (i == 0)
        expected.assign(floats(c_), floats(c_) + result_size);
      else
        check_equal(expected, floats(c_), out_.contenders[i].name, s.name);
      const double once = seconds_of(*peers_[i], 2);
      calls[i] = std::clamp<int64_t>(std::llround(options_.block_seconds / once), 1, 100000);
    }
    for (int round = 0; round < options_.rounds; ++round)
      for (size_t i = 0; i < count; ++i) {
        if (!row.declined[i].empty()) continue;
        std::this_thread::sleep_for(std::chrono::duration<double>(options_.pause_seconds));
        peers_[i]->run();  // wakes its threads
        times[i].push_back(seconds_of(*peers_[i], calls[i]));
      }
    // Round by round: neighbours in time see the machine in the same state, medians over all rounds need not.
    for (size_t i = 1; i < count; ++i) {
      if (times[i].empty()) continue;
      std::vector<double> ratios;
      for (size_t r = 0; r < times[i].size(); ++r) ratios.push_back(times[i][r] / times[0][r]);
      const double ratio = summarize(std::move(ratios)).median;
      row.ratio = row.ratio == 0 ? ratio : std::min(row.ratio, ratio);
    }
    for (auto& t : times) row.seconds.push_back(t.empty() ? Timing{} : summarize(std::move(t)));
    out_.rows.push_back(std::move(row));
    return out_.rows.back();
  }

  GemmBench finish() {
    measure_peak_again();
    double sum = 0;
    for (const GemmBenchRow& r : out_.rows) sum += std::log(r.ratio);
    const bool any =
        !out_.rows.empty() && std::ranges::all_of(out_.rows, [](const GemmBenchRow& r) { return r.ratio > 0; });
    out_.geometric_mean = any ? std::exp(sum / static_cast<double>(out_.rows.size())) : 0;
    return std::move(out_);
  }

 private:
  static float* floats(const Memory& m) { return reinterpret_cast<float*>(m.get()); }
  void add(PeerLibrary lib) {
    out_.contenders.push_back({std::move(lib.name), std::move(lib.version), std::move(lib.missing)});
    peers_.push_back(std::move(lib.gemm));
  }

  GemmBenchOptions options_;
  GemmBench out_;
  std::vector<std::unique_ptr<GemmPeer>> peers_;  // null: missing
  Memory a_, b_, c_;
};

}  // namespace

std::vector<GemmShapeCase> gemm_bench_shapes(const std::vector<std::string>& texts) {
  std::vector<GemmShapeCase> out;
  const auto named = [&](std::string_view part) {
    for (const cpu::NamedGemmShape& g : cpu::kGemmShapes)
      if (g.name.find(part) != std::string_view::npos)
        out.push_back({std::string(g.name), g.m, g.n, g.k, g.batch, g.trans_a, g.trans_b});
  };
  if (texts.empty()) named("");
  for (const std::string& text : texts) {
    const size_t before = out.size();
    if (!text.empty() && text[0] >= '0' && text[0] <= '9') {
      const size_t colon = std::min(text.find(':'), text.size());
      const Shape s = parse_bench_shape(text.substr(0, colon));
      const std::string form = colon < text.size() ? text.substr(colon + 1) : "nn";
      LATHE_USER_CHECK(
          (s.ndim() == 3 || s.ndim() == 4) && form.size() == 2 && form.find_first_not_of("nt") == std::string::npos,
          "bench op matmul --shapes: expected MxNxK or MxNxKxBATCH, then :nn, :nt, :tn or :tt, got \"{}\"", text);
      LATHE_USER_CHECK(std::max({s[0], s[1], s[2]}) <= (int64_t{1} << 30),
                       "bench op matmul --shapes: {} is too large for cblas", text);
      out.push_back({text, s[0], s[1], s[2], s.ndim() == 4 ? s[3] : 1, form[0] == 't', form[1] == 't'});
    } else {
      named(text);
    }
    LATHE_USER_CHECK(out.size() > before,
                     "bench op matmul --shapes: no shape of the workloads has \"{}\" in its name; names look like {}",
                     text, cpu::kGemmShapes[0].name);
  }
  return out;
}

GemmBench bench_gemm(const std::vector<GemmShapeCase>& shapes, const GemmBenchOptions& options,
                     const std::function<void(const GemmBench&)>& on_start,
                     const std::function<void(const GemmBench&, const GemmBenchRow&)>& on_row) {
  Bench bench(shapes, options);
  if (on_start) on_start(bench.result());
  for (const GemmShapeCase& s : shapes) {
    const GemmBenchRow& row = bench.run(s);
    if (on_row) on_row(bench.result(), row);
  }
  return bench.finish();
}

}  // namespace lathe
