// Owner of one OpenCL object.
#pragma once

#include <utility>

#include "backend/opencl/opencl_api.h"

namespace lathe {

template <class T, auto release>
class ClHandle {
 public:
  ClHandle() = default;
  explicit ClHandle(T object) : object_(object) {}
  ClHandle(ClHandle&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  ClHandle& operator=(ClHandle&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  // Errors of a release have no remedy.
  ~ClHandle() {
    if (object_) (opencl_api().*release)(object_);
  }
  T get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  T object_ = nullptr;
};

using ClContext = ClHandle<cl_context, &OpenClApi::clReleaseContext>;
using ClQueue = ClHandle<cl_command_queue, &OpenClApi::clReleaseCommandQueue>;
using ClBuffer = ClHandle<cl_mem, &OpenClApi::clReleaseMemObject>;
using ClProgram = ClHandle<cl_program, &OpenClApi::clReleaseProgram>;
using ClKernel = ClHandle<cl_kernel, &OpenClApi::clReleaseKernel>;
using ClEvent = ClHandle<cl_event, &OpenClApi::clReleaseEvent>;

}  // namespace lathe
