// All-reduce of f32 over MPI: Collectives against the library's MPI_Allreduce, in turns, on all ranks at once. Started
// by bench/all_reduce: `lathe_mpi_bench ROUNDS CHUNK BYTES...`. CHUNK 0: by the link, as runs do.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "base/error.h"
#include "comm/collectives.h"
#include "comm/measure_link.h"
#include "comm/mpi.h"
#include "comm/mpi/plugin.h"

namespace lathe::comm {
namespace {

using Clock = std::chrono::steady_clock;

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<int64_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

// Memory as arenas have it (backend/host_device.cpp): on huge pages, and touched.
std::span<float> pages(size_t size) {
  constexpr size_t kHuge = size_t{2} << 20;
  const size_t whole = (size + kHuge - 1) / kHuge * kHuge;
  void* p = std::aligned_alloc(kHuge, whole);
  LATHE_CHECK(p, "no {} bytes", whole);
  madvise(p, whole, MADV_HUGEPAGE);
  std::memset(p, 0, whole);
  return {static_cast<float*>(p), size / 4};
}

struct Times {  // Seconds, of the slowest rank.
  std::vector<double> all;
  double best() const { return *std::min_element(all.begin(), all.end()); }
};

void run(int rounds, int64_t chunk, const std::vector<size_t>& sizes) {
  const MpiOptions options = mpi_options();
  const auto group = mpi_group(options);
  const LatheMpi& api = mpi_library(options.search, options.timeout);
  LatheMpiHandle theirs{};
  int rank = 0, ranks = 0, last_tag = 0;
  check_mpi(api, api.join(&theirs, &rank, &ranks, &last_tag), "MPI_Comm_dup");
  if (chunk == 0) group->set_flow(flow_of(measure_link(*group)));
  Collectives c(*group, chunk);
  if (rank == 0) {
    fmt::print("{} ranks, {}, chunks of {} bytes\n", ranks, mpi_version(), chunk > 0 ? chunk : group->flow().chunk);
    fmt::print("{:>12} {:>22} {:>22} {:>7} {:>10} {:>20}\n", "bytes", "lathe ms best (median)", "MPI_Allreduce ms",
               "ratio", "lathe GB/s", "of memcpy, GB/s");
  }
  for (const size_t size : sizes) {
    const std::span<float> data = pages(size), other = pages(size);
    Times ours, library, copies;
    const auto time = [&](Times& out, auto&& f) {
      // Short ones several times: the clock and the start of the ranks would be most of it.
      const int repeat = size < 1 << 18 ? 20 : 1;
      c.barrier();
      const auto begin = Clock::now();
      for (int i = 0; i < repeat; ++i) f();
      std::vector<double> seconds{std::chrono::duration<double>(Clock::now() - begin).count() / repeat};
      c.all_reduce(std::as_writable_bytes(std::span(seconds)), DType::f64, Reduce::max);
      out.all.push_back(seconds[0]);
    };
    for (int round = 0; round < rounds + 2; ++round) {
      time(ours, [&] { c.all_reduce(std::as_writable_bytes(data), DType::f32); });
      time(library, [&] {
        check_mpi(api, api.all_reduce(theirs, other.data(), static_cast<int>(other.size())), "MPI_Allreduce");
      });
      time(copies, [&] { std::memcpy(other.data(), data.data(), size); });
      if (round < 2) ours.all.clear(), library.all.clear(), copies.all.clear();  // connections, pages
    }
    if (rank == 0) {
      const double rate = static_cast<double>(size) / ours.best() * 1e-9,
                   copy = static_cast<double>(size) / copies.best() * 1e-9;
      fmt::print("{:>12} {:>12.3f} ({:>7.3f}) {:>12.3f} ({:>7.3f}) {:>7.2f} {:>10.2f} {:>12.0f} % {:>5.1f}\n", size,
                 1e3 * ours.best(), 1e3 * median(ours.all), 1e3 * library.best(), 1e3 * median(library.all),
                 ours.best() / library.best(), rate, 100 * rate / copy, copy);
    }
    std::free(data.data());
    std::free(other.data());
  }
}

}  // namespace
}  // namespace lathe::comm

int main(int argc, char** argv) {
  try {
    std::vector<size_t> sizes;
    for (int i = 3; i < argc; ++i) sizes.push_back(std::strtoull(argv[i], nullptr, 10));
    if (sizes.empty()) sizes = {1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20};
    lathe::comm::run(argc > 1 ? std::atoi(argv[1]) : 20, argc > 2 ? std::strtoll(argv[2], nullptr, 10) : 0, sizes);
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
