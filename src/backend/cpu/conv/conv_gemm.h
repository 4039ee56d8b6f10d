// 2-d convolution and its gradients on gemm: packing reads the image through its im2col view, nothing is unfolded in
// memory. Layouts: x [n, h, w, c], w [o, kh, kw, c / groups], y [n, oh, ow, o]. The summation order of an element
// depends on the kernel, channels and image sizes, never on threads; the same contract as gemm holds.
// Depthwise convolution (one input channel per group) has loops of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cpu/gemm/gemm.h"

namespace lathe::cpu {

struct ConvShape {
  int64_t n = 1, h = 1, w = 1, c = 1, o = 1, kh = 1, kw = 1;
  int64_t stride_h = 1, stride_w = 1, pad_top = 0, pad_left = 0, dil_h = 1, dil_w = 1, groups = 1;
  int64_t oh = 1, ow = 1;  // given, so that padding at the bottom and right needs no fields of its own

  int64_t pixels() const { return n * oh * ow; }
  int64_t group_c() const { return c / groups; }
  int64_t group_o() const { return o / groups; }
  int64_t taps() const { return kh * kw; }
  bool depthwise() const { return groups == c && groups > 1; }
};

enum class ConvPass { forward, dx, dw };

// Bytes of workspace (aligned to 64) of one of the functions below. T is float or double.
template <class T>
int64_t conv2d_workspace(ConvPass, const ConvShape&, int threads);

// Epilogue rows are the pixels (n, oh, ow), columns the output channels.
template <class T>
void conv2d_forward(ThreadPool&, const ConvShape&, T* y, const T* x, const T* w, const Epilogue<T>&,
                    std::span<std::byte> workspace);

template <class T>
void conv2d_dx(ThreadPool&, const ConvShape&, T* dx, const T* dy, const T* w, std::span<std::byte> workspace);

template <class T>
void conv2d_dw(ThreadPool&, const ConvShape&, T* dw, const T* x, const T* dy, std::span<std::byte> workspace);

}  // namespace lathe::cpu
