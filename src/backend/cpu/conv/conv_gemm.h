// 2-d convolution and its gradients on gemm: packing reads the image through its im2col view, nothing is unfolded in
// memory. Layouts are those of ops/conv2d.h. The summation order of an element
// depends on the kernel, channels and image sizes, never on threads; the same contract as gemm holds.
// Depthwise convolution (one input channel per group) has loops of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cpu/gemm/gemm.h"
#include "ops/conv2d.h"

namespace lathe::cpu {

enum class ConvPass { forward, dx, dw };

// Bytes of workspace (aligned to 64) of one of the functions below. T is float or double.
template <class T>
int64_t conv2d_workspace(ConvPass, const ConvGeometry&, int threads);

// Epilogue rows are the pixels (n, oh, ow), columns the output channels.
template <class T>
void conv2d_forward(ThreadPool&, const ConvGeometry&, T* y, const T* x, const T* w, const Epilogue<T>&,
                    std::span<std::byte> workspace);

template <class T>
void conv2d_dx(ThreadPool&, const ConvGeometry&, T* dx, const T* dy, const T* w, std::span<std::byte> workspace);

template <class T>
void conv2d_dw(ThreadPool&, const ConvGeometry&, T* dw, const T* x, const T* dy, std::span<std::byte> workspace);

}  // namespace lathe::cpu
