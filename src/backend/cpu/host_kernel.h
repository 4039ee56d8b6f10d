// What kernels of the cpu backend are made from: plain pointers of their arguments, and a function to run.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/host_device.h"

namespace lathe::cpu {

struct HostArgs {
  HostArgs(Device& device, const KernelArgs& args) : pool(host_device(device).pool()) {
    const HostDevice& host = host_device(device);
    for (const Buffer& b : args.in) in.push_back(host.address(b));
    for (const Buffer& b : args.out) out.push_back(host.address(b));
    if (args.workspace.bytes > 0) workspace = {host.address(args.workspace), static_cast<size_t>(args.workspace.bytes)};
  }

  template <class T>
  const T* x(size_t i) const {
    return reinterpret_cast<const T*>(in[i]);
  }
  template <class T>
  T* y(size_t i = 0) const {
    return reinterpret_cast<T*>(out[i]);
  }

  ThreadPool& pool;
  std::vector<std::byte*> in, out;
  std::span<std::byte> workspace;
};

template <class F>
class HostKernel final : public Kernel {
 public:
  explicit HostKernel(F f) : f_(std::move(f)) {}
  void run(Stream&) override { f_(); }

 private:
  F f_;
};

// A kernel that calls f(). What f needs was worked out by bind().
template <class F>
std::unique_ptr<Kernel> host_kernel(F f) {
  return std::make_unique<HostKernel<F>>(std::move(f));
}

}  // namespace lathe::cpu
