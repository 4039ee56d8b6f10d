// For tests: runs one node on a backend's kernels, and the oracle's answer to compare with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/checked.h"
#include "base/philox.h"
#include "base/thread_pool.h"
#include "ir/builder.h"
#include "ir/interpret.h"

namespace lathe::cpu {

inline void pack(std::byte* dst, const HostTensor& t) {
  dispatch(t.type.dtype, [&](auto v) {
    using T = decltype(v);
    for (size_t i = 0; i < t.data.size(); ++i)
      reinterpret_cast<T*>(dst)[i] = static_cast<T>(round_to(t.type.dtype, t.data[i]));
  });
}

inline HostTensor unpack(const TensorType& type, const std::byte* src) {
  HostTensor t{type, {}};
  dispatch(type.dtype, [&](auto v) {
    using T = decltype(v);
    for (int64_t i = 0; i < type.numel(); ++i)
      t.data.push_back(static_cast<double>(reinterpret_cast<const T*>(src)[i]));
  });
  return t;
}

// Values of a sample's inputs, representable in their dtypes.
inline std::vector<HostTensor> sample_values(const Sample& s, uint64_t seed) {
  std::vector<HostTensor> out;
  for (size_t k = 0; k < s.inputs.size(); ++k) {
    const SampleInput& in = s.inputs[k];
    const CounterRng rng(seed, static_cast<uint32_t>(k), 0, 0);
    HostTensor t{in.type, {}};
    for (int64_t i = 0; i < in.type.numel(); ++i) {
      const double u = rng.uniform(static_cast<uint64_t>(i));
      double v = in.lo + (in.hi - in.lo) * u;
      if (!is_float(in.type.dtype))
        v = std::min(in.hi, std::floor(in.lo + (in.hi - in.lo + 1) * u));
      else if (std::abs(v) < in.gap)
        v = v < 0 ? -in.gap : in.gap;
      t.data.push_back(round_to(in.type.dtype, v));
    }
    out.push_back(std::move(t));
  }
  return out;
}

inline Node make_node(const OpDef& op, ParamsPtr params) {
  Node n;
  n.op = &op;
  n.params = std::move(params);
  return n;
}

struct SiteResult {
  std::string kernel;    // that ran; empty: none accepted
  std::string declined;  // reasons of those that did not
  std::vector<HostTensor> out;
  std::vector<std::byte> bytes;  // of all outputs, for comparing bits
};

// Binds the first kernel that accepts and runs it `runs` times. `alias[i]` >= 0 puts output i in the place of that
// input.
inline SiteResult run_site(const OpDef& op, ParamsPtr params, const std::vector<HostTensor>& in, int threads,
                           const std::vector<int>& alias = {}) {
  const Backend& backend = cpu_backend();
  const DeviceOptions options{.threads = threads};
  const Target target = backend.target(options);
  const Node node = make_node(op, params);
  Types types;
  for (const HostTensor& t : in) types.push_back(t.type);
  const Site site{node, types, op.infer(types, params.get()), target};
  SiteResult result;
  for (const KernelTable::Row& row : backend.kernels().candidates(op.name())) {
    const std::string reason = row.candidate.accepts(site);
    if (!reason.empty()) {
      result.declined += fmt::format("{}: {}\n", row.candidate.name, reason);
      continue;
    }
    result.kernel = row.candidate.name;
    KernelArgs args;
    int64_t bytes = 0;
    const auto place = [&](int64_t size) {
      const Buffer b{0, bytes, size};
      bytes += round_up(size, 64) + 64;  // a gap, which must stay untouched
      return b;
    };
    for (const TensorType& t : site.in) args.in.push_back(place(t.bytes()));
    for (size_t i = 0; i < site.out.size(); ++i)
      args.out.push_back(i < alias.size() && alias[i] >= 0 ? args.in[static_cast<size_t>(alias[i])]
                                                           : place(site.out[i].bytes()));
    args.workspace = place(row.candidate.workspace ? row.candidate.workspace(site) : 0);
    flush_denormals();  // as the executor does
    auto device = backend.open(options);
    const std::vector<int64_t> segments{bytes};
    device->allocate(segments);
    std::vector<std::byte> before(static_cast<size_t>(bytes), std::byte{0x5a}), after(before.size());
    for (size_t i = 0; i < in.size(); ++i) pack(before.data() + args.in[i].offset, in[i]);
    Stream& stream = device->stream(Lane::compute);
    const Buffer all{0, 0, bytes};
    stream.copy_in(all, before.data());
    row.candidate.bind(*device, site, args)->run(stream);
    stream.synchronize();
    stream.copy_out(after.data(), all);
    for (size_t i = 0; i < site.out.size(); ++i) {
      const Buffer& b = args.out[i];
      result.out.push_back(unpack(site.out[i], after.data() + b.offset));
      result.bytes.insert(result.bytes.end(), after.begin() + b.offset, after.begin() + b.offset + b.bytes);
    }
    // Nothing but outputs and workspace may have changed.
    std::vector<uint8_t> may_change(static_cast<size_t>(bytes), 0);
    for (const Buffer& b : args.out) std::fill_n(may_change.begin() + b.offset, b.bytes, uint8_t{1});
    std::fill_n(may_change.begin() + args.workspace.offset, args.workspace.bytes, uint8_t{1});
    for (size_t i = 0; i < before.size(); ++i)
      if (!may_change[i] && before[i] != after[i]) {
        result.kernel += fmt::format(" wrote outside its outputs, at byte {}", i);
        break;
      }
    break;
  }
  return result;
}

inline std::vector<HostTensor> run_reference(const OpDef& op, ParamsPtr params, const std::vector<HostTensor>& in) {
  Builder b("reference");
  Values x;
  for (const HostTensor& t : in) x.push_back(b.input(t.type, InputKind::batch, "x" + std::to_string(x.size())));
  for (const Value& y : b.add(op, x, params)) b.output(y, OutputKind::result, "y" + std::to_string(y.id()));
  return interpret(b.finish(), in, Precision::rounded);
}

// Largest error relative to the scale of the tensor, which counts as 0.01 at least: some samples give rounding noise
// around 0. Infinite where NaN or infinity stands on one side only.
inline double tensor_error(const HostTensor& got, const HostTensor& want) {
  if (!(got.type == want.type)) return INFINITY;
  double scale = 0.01, worst = 0;
  for (double v : want.data)
    if (std::isfinite(v)) scale = std::max(scale, std::abs(v));
  for (size_t i = 0; i < want.data.size(); ++i) {
    const double a = got.data[i], b = want.data[i];
    if (std::isnan(a) && std::isnan(b)) continue;
    if (a == b) continue;
    const double e = std::abs(a - b) / scale;
    worst = std::isfinite(e) ? std::max(worst, e) : INFINITY;
  }
  return worst;
}

// A 16-bit result: at most one unit in the last place away, and almost everywhere equal.
inline std::string check_narrow(const HostTensor& got, const HostTensor& want) {
  if (!(got.type == want.type)) return "another type";
  size_t wrong = 0;
  const double unit = want.type.dtype == DType::f16 ? 1e-3 : 8e-3;
  for (size_t i = 0; i < want.data.size(); ++i)
    wrong += got.data[i] != want.data[i] && !(std::isnan(got.data[i]) && std::isnan(want.data[i]));
  if (const double e = tensor_error(got, want); e > unit) return fmt::format("error {:.3g}", e);
  if (wrong > 1 + want.data.size() / 25) return fmt::format("{} of {} values differ", wrong, want.data.size());
  return "";
}

}  // namespace lathe::cpu
