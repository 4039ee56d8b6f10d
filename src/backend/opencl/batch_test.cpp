#include "backend/opencl/batch_test.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/opencl/opencl_backend.h"
#include "backend/opencl/opencl_kernels.h"
#include "base/checked.h"

namespace lathe {
namespace {

constexpr int64_t kGuard = 128;
constexpr auto kGuardByte = static_cast<std::byte>(0xA5);

std::vector<std::byte> to_bytes(const HostTensor& t) {
  std::vector<std::byte> out(static_cast<size_t>(t.type.bytes()));
  dispatch(t.type.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (size_t i = 0; i < t.data.size(); ++i) {
      const T v = static_cast<T>(t.data[i]);
      std::memcpy(out.data() + i * sizeof(T), &v, sizeof(T));
    }
  });
  return out;
}

std::vector<double> to_values(DType t, const std::byte* bytes, int64_t count) {
  std::vector<double> out;
  dispatch(t, [&](auto v) {
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(&v, bytes + i * static_cast<int64_t>(sizeof v), sizeof v);
      out.push_back(static_cast<double>(v));
    }
  });
  return out;
}

// Largest difference, relative to the largest value; NaN and infinities must stand in the same places.
double difference(const std::vector<double>& got, const std::vector<double>& want) {
  double scale = 1e-30, worst = 0;
  for (const double v : want)
    if (std::isfinite(v)) scale = std::max(scale, std::fabs(v));
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i]) && std::isnan(got[i])) continue;
    if (want[i] == got[i]) continue;
    const double d = std::fabs(got[i] - want[i]) / scale;
    worst = std::isfinite(d) ? std::max(worst, d) : HUGE_VAL;
  }
  return worst;
}

}  // namespace

std::unique_ptr<OpenClDevice> open_test_device(OpenClDeviceOptions options, std::string* reason) {
  if (opencl_devices(reason).empty()) return nullptr;
  if (options.cache_folder.empty()) {
    const OpenClDeviceOptions usual = opencl_device_options(options.index);
    options.cache_folder = usual.cache_folder;
    options.pocl_files = usual.pocl_files;
  }
  return std::make_unique<OpenClDevice>(options, opencl_backend().target({.index = options.index}));
}

Buffer DeviceBatch::reserve(int64_t bytes) {
  const Buffer b{0, used_ + kGuard, bytes};
  used_ = round_up(b.offset + bytes + kGuard, kGuard);
  return b;
}

std::string DeviceBatch::add(std::string label, Graph g, std::vector<HostTensor> inputs) {
  const Node& n = g.nodes.at(0);
  Job job{std::move(label), g, std::move(inputs), {}, {}, nullptr};
  const Site site{n, g.types_of(n.inputs), g.types_of(n.outputs), device_.target()};
  std::string declined = "no kernel";
  for (const auto& row : opencl_kernels().candidates(n.op->name())) {
    declined = row.candidate.accepts(site);
    if (!declined.empty()) continue;
    job.candidate = row.candidate;
    break;
  }
  if (!job.candidate.bind) return declined;
  for (const TensorType& t : site.in) job.args.in.push_back(reserve(t.bytes()));
  for (const TensorType& t : site.out) job.args.out.push_back(reserve(t.bytes()));
  if (job.candidate.workspace) job.args.workspace = reserve(job.candidate.workspace(site));
  jobs_.push_back(std::move(job));
  return "";
}

std::vector<std::vector<std::byte>> DeviceBatch::run(double tolerance) {
  const int64_t segments[] = {used_};
  device_.allocate(segments);
  Stream& stream = device_.stream(Lane::compute);
  std::vector<std::byte> arena(static_cast<size_t>(used_), kGuardByte);
  for (Job& job : jobs_) {
    const Node& n = job.graph.nodes[0];
    const Site site{n, job.graph.types_of(n.inputs), job.graph.types_of(n.outputs), device_.target()};
    job.kernel = job.candidate.bind(device_, site, job.args);
    for (size_t i = 0; i < job.inputs.size(); ++i) {
      const auto bytes = to_bytes(job.inputs[i]);
      std::ranges::copy(bytes, arena.begin() + job.args.in[i].offset);
    }
  }
  const std::vector<std::byte> before = arena;
  stream.copy_in({0, 0, used_}, arena.data());
  for (Job& job : jobs_) job.kernel->run(stream);
  stream.copy_out(arena.data(), {0, 0, used_});
  stream.synchronize();

  std::vector<std::vector<std::byte>> results;
  std::vector<std::byte> expected = before;  // bytes that no kernel may have touched
  for (Job& job : jobs_) {
    // One unit in the last place of 16 bits, where an f32 lies next to a middle.
    const auto allowed = [&](DType t) {
      return t == DType::f16 ? 1e-3 : t == DType::bf16 ? 8e-3 : is_float(t) ? tolerance : 0.0;
    };
    const auto want = interpret(job.graph, job.inputs, Precision::rounded);
    for (size_t i = 0; i < want.size(); ++i) {
      const Buffer& at = job.args.out[i];
      const auto got = to_values(want[i].type.dtype, arena.data() + at.offset, want[i].type.numel());
      EXPECT_LE(difference(got, want[i].data), allowed(want[i].type.dtype)) << job.label << ", output " << i;
      results.emplace_back(arena.begin() + at.offset, arena.begin() + at.offset + at.bytes);
      std::copy_n(arena.begin() + at.offset, at.bytes, expected.begin() + at.offset);
    }
    const Buffer& w = job.args.workspace;
    std::copy_n(arena.begin() + w.offset, w.bytes, expected.begin() + w.offset);
    const auto begin = job.args.in.empty() ? job.args.out[0].offset : job.args.in[0].offset;
    const auto end = job.args.out.back().offset + job.args.out.back().bytes + kGuard;
    EXPECT_TRUE(std::equal(arena.begin() + begin - kGuard, arena.begin() + end, expected.begin() + begin - kGuard))
        << job.label << " wrote outside of its outputs";
  }
  return results;
}

}  // namespace lathe
