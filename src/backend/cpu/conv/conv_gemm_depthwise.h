// Depthwise convolution (one input channel per group, o / c output channels each) as direct loops over channels.
#pragma once

#include "backend/cpu/conv/conv_gemm.h"

namespace lathe::cpu {

template <class T>
int64_t depthwise_workspace(ConvPass, const ConvGeometry&);

template <class T>
void depthwise_forward(ThreadPool&, const ConvGeometry&, T* y, const T* x, const T* w, const Epilogue<T>&,
                       std::span<std::byte> workspace);
template <class T>
void depthwise_dx(ThreadPool&, const ConvGeometry&, T* dx, const T* dy, const T* w, std::span<std::byte> workspace);
template <class T>
void depthwise_dw(ThreadPool&, const ConvGeometry&, T* dw, const T* x, const T* dy, std::span<std::byte> workspace);

}  // namespace lathe::cpu
