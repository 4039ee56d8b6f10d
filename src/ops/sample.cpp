#include "ops/sample.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "ir/builder.h"

namespace lathe {

Graph sample_graph(const OpDef& op, const Sample& s) {
  Builder b("sample");
  Values x;
  for (size_t i = 0; i < s.inputs.size(); ++i)
    x.push_back(b.input(s.inputs[i].type, InputKind::batch, "x" + std::to_string(i)));
  const Values y = b.add(op, x, s.params);
  for (size_t i = 0; i < y.size(); ++i) b.output(y[i], OutputKind::result, "y" + std::to_string(i));
  return b.finish();
}

std::vector<HostTensor> sample_inputs(const Sample& s, uint64_t seed) {
  std::vector<HostTensor> out;
  for (const SampleInput& in : s.inputs) {
    const CounterRng rng(seed, static_cast<uint32_t>(out.size()), 0, 0);
    HostTensor t{in.type, std::vector<double>(static_cast<size_t>(in.type.numel()))};
    for (size_t i = 0; i < t.data.size(); ++i) {
      const double u = static_cast<double>(rng.uniform(i));
      double v = in.lo + u * (in.hi - in.lo);
      if (!is_float(in.type.dtype))
        v = std::min(std::floor(in.lo + u * (in.hi - in.lo + 1)), in.hi);
      else if (std::abs(v) < in.gap)
        v += v < 0 ? -in.gap : in.gap;
      t.data[i] = round_to(in.type.dtype, v);
    }
    out.push_back(std::move(t));
  }
  return out;
}

}  // namespace lathe
