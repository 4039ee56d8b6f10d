// Operation graphs of cuDNN: pointwise operations, reductions, matrix products and transposes over tensors of four
// axes, one after the other, each result rounded to the type of its tensor.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "sim_cudnn.h"

namespace lathe::sim {
namespace {

using Dims = std::vector<int64_t>;

Dims dims_of(const Bag& t) { return values<int64_t>(t, kTensorDims); }
bool is_inner(const Bag& t) { return value<char>(t, kTensorIsVirtual) != 0; }
bool is_scalar(const Bag& t) { return value<char>(t, kTensorIsByValue) != 0; }

struct Parts {
  std::vector<const Bag*> in;
  const Bag *out = nullptr, *how = nullptr;  // how: null for transposes
};

Parts parts_of(const Bag& op) {
  switch (op.kind) {
    case kMatmulOperation:
      return {{child(op, kMatmulOpA), child(op, kMatmulOpB)}, child(op, kMatmulOpC), child(op, kMatmulOpDesc)};
    case kReductionOperation:
      return {{child(op, kReductionOpX)}, child(op, kReductionOpY), child(op, kReductionOpDesc)};
    case kReshapeOperation: return {{child(op, kReshapeOpX)}, child(op, kReshapeOpY), nullptr};
  }
  Parts p{{child(op, kPointwiseOpX)}, child(op, kPointwiseOpY), child(op, kPointwiseOpMode)};
  for (const int name : {kPointwiseOpB, kPointwiseOpT})
    if (op.attributes.count(name)) p.in.push_back(child(op, name));
  return p;
}

size_t operands(int mode) {
  switch (mode) {
    case kPwExp:
    case kPwLog:
    case kPwIndex: return 1;
    case kPwAdd:
    case kPwMul:
    case kPwDiv:
    case kPwSub:
    case kPwGreaterEqual: return 2;
    case kPwSelect: return 3;
  }
  return 0;
}

double apply(int mode, double x, double b, double t) {
  switch (mode) {
    case kPwAdd: return x + b;
    case kPwMul: return x * b;
    case kPwDiv: return x / b;
    case kPwSub: return x - b;
    case kPwExp: return std::exp(x);
    case kPwLog: return std::log(x);
    case kPwGreaterEqual: return x >= b;
    default: return t != 0 ? x : b;
  }
}

bool spreads(const Dims& from, const Dims& to) {
  for (size_t i = 0; i < 4; ++i)
    if (from[i] != to[i] && from[i] != 1) return false;
  return true;
}

// Numbers of a tensor in row-major order.
struct Numbers {
  Dims dims, strides;
  int type = 0;            // of cuDNN
  char* memory = nullptr;  // null: inside of the graph
  std::vector<double> at;

  explicit Numbers(const Bag& t)
      : dims(dims_of(t)), strides(values<int64_t>(t, kTensorStrides)), type(value<int>(t, kTensorType)) {
    at.resize(static_cast<size_t>(dims[0] * dims[1] * dims[2] * dims[3]));
  }
  // f(place in `at`, offset in memory)
  template <class F>
  void each(F&& f) const {
    size_t place = 0;
    for (int64_t a = 0; a < dims[0]; ++a)
      for (int64_t b = 0; b < dims[1]; ++b)
        for (int64_t c = 0; c < dims[2]; ++c)
          for (int64_t d = 0; d < dims[3]; ++d)
            f(place++, a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3]);
  }
  double get(int64_t a, int64_t b, int64_t c, int64_t d) const {
    const auto in = [&](size_t i, int64_t x) { return dims[i] == 1 ? 0 : x; };
    return at[static_cast<size_t>(((in(0, a) * dims[1] + in(1, b)) * dims[2] + in(2, c)) * dims[3] + in(3, d))];
  }
  void load() {
    each([&](size_t place, int64_t offset) { at[place] = load_number(memory, offset, cuda_type(type)); });
  }
  // As the type holds them; and into memory.
  void store() {
    if (cuda_type(type) < 0) return;
    char rounded[8];
    each([&](size_t place, int64_t offset) {
      store_number(rounded, 0, cuda_type(type), at[place]);
      at[place] = load_number(rounded, 0, cuda_type(type));
      if (memory) store_number(memory, offset, cuda_type(type), at[place]);
    });
  }
};

struct Step {
  int kind = 0, mode = 0;
  int64_t axis = -1;
  std::vector<size_t> in;
  size_t out = 0;
};

void compute(const Step& s, std::vector<Numbers>& tensors) {
  Numbers& y = tensors[s.out];
  const Numbers& x = tensors[s.in[0]];
  if (s.kind == kReshapeOperation) {
    std::map<int64_t, double> memory;
    x.each([&](size_t place, int64_t offset) { memory[offset] = x.at[place]; });
    y.each([&](size_t place, int64_t offset) { y.at[place] = memory.at(offset); });
    return y.store();
  }
  size_t place = 0;
  for (int64_t a = 0; a < y.dims[0]; ++a)
    for (int64_t b = 0; b < y.dims[1]; ++b)
      for (int64_t c = 0; c < y.dims[2]; ++c)
        for (int64_t d = 0; d < y.dims[3]; ++d) {
          double v = 0;
          if (s.kind == kMatmulOperation) {
            const Numbers& right = tensors[s.in[1]];
            for (int64_t k = 0; k < x.dims[3]; ++k) v += x.get(a, b, c, k) * right.get(a, b, k, d);
          } else if (s.kind == kReductionOperation) {
            v = s.mode == kReduceMax ? -INFINITY : 0;
            for (int64_t k = 0; k < x.dims[3]; ++k) {
              const double u = x.get(a, b, c, k);
              v = s.mode == kReduceMax ? std::max(v, u) : v + u;
            }
          } else if (s.mode == kPwIndex) {
            v = static_cast<double>(s.axis == 2 ? c : d);
          } else {
            double u[3] = {};
            for (size_t i = 0; i < s.in.size(); ++i) u[i] = tensors[s.in[i]].get(a, b, c, d);
            v = apply(s.mode, u[0], u[1], u[2]);
          }
          y.at[place++] = v;
        }
  y.store();
}

}  // namespace

size_t span_of(const Bag& tensor) {
  const auto dims = values<int64_t>(tensor, kTensorDims), strides = values<int64_t>(tensor, kTensorStrides);
  int64_t last = 0;
  for (size_t i = 0; i < 4; ++i) last += (dims[i] - 1) * strides[i];
  return static_cast<size_t>((last + 1) * type_size(cuda_type(value<int>(tensor, kTensorType))));
}

bool is_general(int kind) {
  return kind == kPointwiseOperation || kind == kMatmulOperation || kind == kReductionOperation ||
         kind == kReshapeOperation;
}

int finalize_general(const Bag& op) {
  const Parts p = parts_of(op);
  if (!p.out || !p.out->finalized || (op.kind != kReshapeOperation && (!p.how || !p.how->finalized)))
    return wrong(kDnnBadParamNotFinalized, "an operation with an unfinished part");
  for (const Bag* t : p.in)
    if (!t || !t->finalized) return wrong(kDnnBadParamNotFinalized, "an operation with an unfinished tensor");
  const Dims x = dims_of(*p.in[0]), y = dims_of(*p.out);
  const auto shapes = [&](const char* what) {
    return wrong(kDnnBadParamShapeMismatch,
                 fmt::format("{} of {} gives {}", what, fmt::join(x, "x"), fmt::join(y, "x")));
  };
  if (op.kind == kMatmulOperation) {
    const Dims b = dims_of(*p.in[1]);
    if (x[0] != b[0] || x[1] != b[1] || x[3] != b[2] || y != Dims{x[0], x[1], x[2], b[3]}) return shapes("a product");
    if (value<int>(*p.how, kMatmulCompType, -1) != kDnnFloat)
      return wrong(kDnnNotSupportedDataType, "a product that is not computed in float");
    for (const Bag* t : p.in)
      if (cuda_type(value<int>(*t, kTensorType)) < 0) return wrong(kDnnNotSupportedDataType, "a product of integers");
  } else if (op.kind == kReductionOperation) {
    if (y != Dims{x[0], x[1], x[2], 1}) return shapes("a reduction");
    const int how = value<int>(*p.how, kReductionOperator, -1);
    if (how != kReduceAdd && how != kReduceMax) return wrong(kDnnNotSupported, fmt::format("reduction {}", how));
  } else if (op.kind == kReshapeOperation) {
    if (y != Dims{x[0], x[1], x[3], x[2]}) return shapes("a transpose");
    const auto from = values<int64_t>(*p.in[0], kTensorStrides), to = values<int64_t>(*p.out, kTensorStrides);
    if (to != Dims{from[0], from[1], from[3], from[2]}) return wrong(kDnnNotSupportedLayout, "a transpose that moves");
  } else {
    const int mode = value<int>(*p.how, kPointwiseMode, -1);
    if (operands(mode) == 0 || operands(mode) != p.in.size())
      return wrong(kDnnBadParam, fmt::format("pointwise mode {} of {} tensors", mode, p.in.size()));
    for (const Bag* t : p.in)
      if (!spreads(dims_of(*t), y)) return shapes("a pointwise operation");
    if (mode == kPwIndex && value<int64_t>(*p.how, kPointwiseAxis, -1) < 2)
      return wrong(kDnnNotSupported, "indices of another axis than the last two");
    const bool compares = mode == kPwGreaterEqual;
    const int type = value<int>(*p.out, kTensorType);
    if (compares != (type == kDnnBool) || (mode == kPwIndex) != (type == kDnnInt32))
      return wrong(kDnnBadParam, fmt::format("pointwise mode {} into type {}", mode, type));
  }
  return kDnnSuccess;
}

int check_general(const std::vector<const Bag*>& operations) {
  std::set<const Bag*> made;
  for (const Bag* op : operations) {
    if (!is_general(op->kind)) return wrong(kDnnNotSupported, "a convolution among other operations");
    const Parts p = parts_of(*op);
    for (const Bag* t : p.in)
      if (is_inner(*t) && made.count(t) == 0) return wrong(kDnnBadParam, "an inner tensor is read before it is made");
    if (is_scalar(*p.out) || !made.insert(p.out).second) return wrong(kDnnBadParam, "a tensor is made twice");
  }
  return kDnnSuccess;
}

// The gradient of attention keeps that of the scores, as NVIDIA's engines that repeat their bits do; it is recognised
// by its number of products.
int64_t general_workspace(const std::vector<const Bag*>& operations) {
  constexpr int64_t kLeast = 256, kRows = 64, kForwardProducts = 2;
  int64_t products = 0, scores = 0;
  for (const Bag* op : operations) {
    if (op->kind != kMatmulOperation) continue;
    ++products;
    const Dims d = dims_of(*parts_of(*op).out);
    const int64_t rows = (d[2] + kRows - 1) / kRows * kRows;
    if (d[2] == d[3]) scores = 2 * d[0] * d[1] * rows * rows;
  }
  return kLeast + (products > kForwardProducts ? scores : 0);
}

int prepare_general(const std::vector<const Bag*>& operations, const std::function<char*(const Bag&)>& pointer,
                    GraphRun* run) {
  std::vector<Numbers> tensors;
  std::vector<Step> steps;
  std::vector<size_t> loads;
  std::map<const Bag*, size_t> places;
  std::set<int64_t> uids;
  int status = kDnnSuccess;
  const auto place = [&](const Bag* t, bool write) {
    const auto [at, added] = places.try_emplace(t, tensors.size());
    if (!added) return at->second;
    Numbers& n = tensors.emplace_back(*t);
    if (!uids.insert(value<int64_t>(*t, kTensorUid)).second) status = wrong(kDnnBadParam, "two tensors of one number");
    if (is_inner(*t)) return at->second;
    char* data = pointer(*t);
    if (!data) {
      status = wrong(kDnnBadParamNullPointer, "the pack has no pointer for a tensor");
    } else if (is_scalar(*t)) {
      // The call carries the value.
      n.at[0] = load_number(data, 0, cuda_type(n.type));
    } else {
      if (reinterpret_cast<Address>(data) % static_cast<Address>(value<int64_t>(*t, kTensorAlignment)) != 0)
        status = wrong(kDnnBadParamMisaligned, "a tensor is not aligned as its descriptor says");
      n.memory = data;
      run->accesses.push_back({reinterpret_cast<Address>(data), span_of(*t), write});
      if (!write) loads.push_back(at->second);
    }
    return at->second;
  };
  for (const Bag* op : operations) {
    const Parts p = parts_of(*op);
    Step s;
    s.kind = op->kind;
    if (p.how) {
      s.mode = value<int>(*p.how, op->kind == kReductionOperation ? kReductionOperator : kPointwiseMode);
      s.axis = value<int64_t>(*p.how, kPointwiseAxis, -1);
    }
    for (const Bag* t : p.in) s.in.push_back(place(t, false));
    s.out = place(p.out, true);
    steps.push_back(std::move(s));
  }
  run->name = "cudnn operation graph";
  run->work = [=]() mutable {
    for (const size_t i : loads) tensors[i].load();
    for (const Step& s : steps) compute(s, tensors);
  };
  return status;
}

}  // namespace lathe::sim
