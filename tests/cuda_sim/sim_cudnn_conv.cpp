// Convolutions of cuDNN's graph API: computed from the tensors' sizes and strides.
#include <fmt/format.h>

#include <algorithm>

#include "sim_cudnn.h"

namespace lathe::sim {
namespace {

// A convolution with its three tensors, whichever of them is the result.
struct Problem {
  const Bag *conv = nullptr, *x = nullptr, *w = nullptr, *y = nullptr;
  double alpha = 1, beta = 0;
  int result = 0;  // 0: y, 1: x, 2: w
  bool double_scale = false;
};

Problem problem_of(const Bag& op) {
  Problem p;
  int alpha = 0, beta = 0;
  if (op.kind == kConvForwardDescriptor) {
    p = {child(op, kForwardConv), child(op, kForwardX), child(op, kForwardW), child(op, kForwardY), 1, 0, 0, false};
    alpha = kForwardAlpha, beta = kForwardBeta;
  } else if (op.kind == kConvBwdDataDescriptor) {
    p = {child(op, kBwdDataConv), child(op, kBwdDataDx), child(op, kBwdDataW), child(op, kBwdDataDy), 1, 0, 1, false};
    alpha = kBwdDataAlpha, beta = kBwdDataBeta;
  } else {
    p = {child(op, kBwdFilterConv),
         child(op, kBwdFilterX),
         child(op, kBwdFilterDw),
         child(op, kBwdFilterDy),
         1,
         0,
         2,
         false};
    alpha = kBwdFilterAlpha, beta = kBwdFilterBeta;
  }
  const auto at = op.attributes.find(alpha);
  p.double_scale = at != op.attributes.end() && at->second.type == kTypeDouble;
  p.alpha = p.double_scale ? value<double>(op, alpha, 1) : static_cast<double>(value<float>(op, alpha, 1));
  p.beta = p.double_scale ? value<double>(op, beta, 0) : static_cast<double>(value<float>(op, beta, 0));
  return p;
}

// Dense copies in the order N C H W.
struct Tensor {
  std::vector<int64_t> dims, strides;
  int type = 0;
  char* data = nullptr;
  std::vector<double> numbers;

  Tensor(const Bag& b, char* memory)
      : dims(values<int64_t>(b, kTensorDims)),
        strides(values<int64_t>(b, kTensorStrides)),
        type(cuda_type(value<int>(b, kTensorType))),
        data(memory) {
    numbers.resize(static_cast<size_t>(dims[0] * dims[1] * dims[2] * dims[3]));
  }
  template <class F>
  void each(F&& f) {
    size_t at = 0;
    for (int64_t a = 0; a < dims[0]; ++a)
      for (int64_t b = 0; b < dims[1]; ++b)
        for (int64_t c = 0; c < dims[2]; ++c)
          for (int64_t d = 0; d < dims[3]; ++d)
            f(numbers[at++], a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3]);
  }
  void load() {
    each([&](double& v, int64_t at) { v = load_number(data, at, type); });
  }
  void store(double alpha, double beta) {
    each([&](double v, int64_t at) {
      store_number(data, at, type, alpha * v + (beta != 0 ? beta * load_number(data, at, type) : 0));
    });
  }
};

void convolve(const Bag& conv, int result, Tensor& x, Tensor& w, Tensor& y) {
  const auto stride = values<int64_t>(conv, kConvStrides), dilation = values<int64_t>(conv, kConvDilations),
             pad = values<int64_t>(conv, kConvPrePaddings);
  const int64_t groups = x.dims[1] / w.dims[1], per = w.dims[0] / groups, C = w.dims[1], R = w.dims[2], S = w.dims[3];
  const int64_t H = x.dims[2], W = x.dims[3], P = y.dims[2], Q = y.dims[3];
  Tensor& out = result == 0 ? y : result == 1 ? x : w;
  std::ranges::fill(out.numbers, 0.0);
  for (int64_t n = 0; n < x.dims[0]; ++n)
    for (int64_t o = 0; o < w.dims[0]; ++o)
      for (int64_t c = 0; c < C; ++c)
        for (int64_t r = 0; r < R; ++r)
          for (int64_t s = 0; s < S; ++s) {
            double& weight = w.numbers[static_cast<size_t>(((o * C + c) * R + r) * S + s)];
            for (int64_t p = 0; p < P; ++p) {
              const int64_t h = p * stride[0] - pad[0] + r * dilation[0];
              if (h < 0 || h >= H) continue;
              double* xs = &x.numbers[static_cast<size_t>(((n * x.dims[1] + o / per * C + c) * H + h) * W)];
              double* ys = &y.numbers[static_cast<size_t>(((n * w.dims[0] + o) * P + p) * Q)];
              for (int64_t q = 0; q < Q; ++q) {
                const int64_t col = q * stride[1] - pad[1] + s * dilation[1];
                if (col < 0 || col >= W) continue;
                if (result == 0)
                  ys[q] += xs[col] * weight;
                else if (result == 1)
                  xs[col] += ys[q] * weight;
                else
                  weight += xs[col] * ys[q];
              }
            }
          }
}

}  // namespace

int finalize_conv(const Bag& b) {
  const Problem p = problem_of(b);
  for (const Bag* c : {p.conv, p.x, p.w, p.y})
    if (!c || !c->finalized) return wrong(kDnnBadParamNotFinalized, "a convolution with an unfinished part");
  const auto x = values<int64_t>(*p.x, kTensorDims), w = values<int64_t>(*p.w, kTensorDims),
             y = values<int64_t>(*p.y, kTensorDims);
  const auto stride = values<int64_t>(*p.conv, kConvStrides), dilation = values<int64_t>(*p.conv, kConvDilations);
  const auto before = values<int64_t>(*p.conv, kConvPrePaddings), after = values<int64_t>(*p.conv, kConvPostPaddings);
  if (x[0] != y[0] || w[0] != y[1] || x[1] % w[1] != 0 || w[0] % (x[1] / w[1]) != 0)
    return wrong(kDnnBadParamShapeMismatch,
                 fmt::format("x {}x{}, w {}x{}, y {}x{}", x[0], x[1], w[0], w[1], y[0], y[1]));
  for (size_t i = 0; i < 2; ++i) {
    const int64_t out = (x[i + 2] + before[i] + after[i] - ((w[i + 2] - 1) * dilation[i] + 1)) / stride[i] + 1;
    if (out != y[i + 2])
      return wrong(kDnnBadParamShapeMismatch, fmt::format("y has size {}, the convolution gives {}", y[i + 2], out));
  }
  const int type = value<int>(*p.x, kTensorType), compute = value<int>(*p.conv, kConvCompType);
  if (type != value<int>(*p.w, kTensorType) || type != value<int>(*p.y, kTensorType))
    return wrong(kDnnNotSupportedDataType, "tensors of several types");
  if (compute != (type == kDnnDouble ? kDnnDouble : kDnnFloat))
    return wrong(kDnnNotSupportedDataType, fmt::format("type {} computed in {}", type, compute));
  if (p.double_scale != (type == kDnnDouble))
    return wrong(kDnnBadParamAttributeType, "alpha of another type than the arithmetic");
  return kDnnSuccess;
}

int64_t conv_workspace(const Bag& operation) { return static_cast<int64_t>(span_of(*problem_of(operation).w)); }

bool conv_has_engine(const Bag& operation) {
  return value<int>(*problem_of(operation).w, kTensorType, -1) != kDnnBfloat16 || capability() >= 80;
}

int prepare_conv(const Bag& operation, int engine, const std::function<char*(const Bag&)>& pointer, GraphRun* run) {
  const Problem problem = problem_of(operation);
  const Bag* tensors[3] = {problem.y, problem.x, problem.w};
  for (int i = 0; i < 3; ++i) {
    char* data = pointer(*tensors[i]);
    if (!data) return wrong(kDnnBadParamNullPointer, "the pack has no pointer for a tensor");
    if (reinterpret_cast<Address>(data) % static_cast<Address>(value<int64_t>(*tensors[i], kTensorAlignment)) != 0)
      return wrong(kDnnBadParamMisaligned, "a tensor is not aligned as its descriptor says");
    run->accesses.push_back({reinterpret_cast<Address>(data), span_of(*tensors[i]), i == problem.result});
  }
  // Everything is copied: descriptors may be gone when a captured graph runs.
  Tensor x(*problem.x, pointer(*problem.x)), w(*problem.w, pointer(*problem.w)), y(*problem.y, pointer(*problem.y));
  const Bag conv = *problem.conv;
  const int result = problem.result;
  const double alpha = problem.alpha, beta = problem.beta;
  run->name = result == 0   ? "cudnn convolution"
              : result == 1 ? "cudnn convolution, data gradient"
                            : "cudnn convolution, weight gradient";
  run->work = [=]() mutable {
    if (result != 1) x.load();
    if (result != 2) w.load();
    if (result != 0) y.load();
    if (engine == kTensorCore && x.type == kR32F)  // TF32; double precision has tensor cores of its own
      for (Tensor* t : {&x, &w, &y})
        for (double& number : t->numbers) number = round_bits(static_cast<float>(number), 13);
    convolve(conv, result, x, w, y);
    (result == 0 ? y : result == 1 ? x : w).store(alpha, beta);
  };
  return kDnnSuccess;
}

}  // namespace lathe::sim
