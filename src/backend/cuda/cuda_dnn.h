// cuDNN's graph API as C++ objects: descriptors, and one operation graph with the plan chosen for it.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/cuda_device.h"

namespace lathe {

// A backend descriptor, destroyed with the object.
class DnnDescriptor {
 public:
  DnnDescriptor(const cuda::Api&, int kind);
  DnnDescriptor(DnnDescriptor&&) noexcept;
  DnnDescriptor& operator=(DnnDescriptor&&) noexcept;
  ~DnnDescriptor();

  template <class T>
  DnnDescriptor& set(int name, int type, const T& value) {
    return set_many(name, type, 1, &value);
  }
  template <size_t N>
  DnnDescriptor& set(int name, const std::array<int64_t, N>& values) {
    return set_many(name, cuda::kTypeInt64, static_cast<int64_t>(N), values.data());
  }
  DnnDescriptor& set(int name, const DnnDescriptor& part) {
    return set_many(name, cuda::kTypeDescriptor, 1, &part.handle_);
  }
  DnnDescriptor& set_many(int name, int type, int64_t count, const void* values);
  DnnDescriptor& finish();
  cuda::DnnDescriptor handle() const { return handle_; }

 private:
  const cuda::Api* api_;
  cuda::DnnDescriptor handle_ = nullptr;
};

// Built once: tensors, operations, choose(); run() only launches.
class DnnGraph {
 public:
  using Dims = std::array<int64_t, 4>;
  explicit DnnGraph(CudaDevice&);

  // A tensor in the arena; one that only the graph sees; one value that the call carries.
  const DnnDescriptor& tensor(int type, const Dims& dims, const Dims& strides, cuda::Address);
  const DnnDescriptor& inner(int type, const Dims& dims, const Dims& strides);
  const DnnDescriptor& scalar(float value);
  // Descriptors that the caller fills and finishes, in the order in which values are computed.
  DnnDescriptor& part(int kind);
  DnnDescriptor& operation(int kind);

  // Takes the first engine, as cuDNN ranks them, that repeats its bits, supports the graph and needs no more workspace.
  // `strict`: engines that round f32 operands are passed by, too. False, with the least workspace that was asked for
  // (-1: none), when there is none; true at most once.
  bool choose(bool strict, cuda::Address workspace, int64_t workspace_bytes, int64_t* least);
  void run() const;

 private:
  const DnnDescriptor& add_tensor(int type, const Dims& dims, const Dims& strides, int flag, const void* pointer);
  bool numbers_fit(const DnnDescriptor& config, bool strict) const;

  CudaDevice& device_;
  std::deque<DnnDescriptor> parts_;  // whatever the plan refers to
  std::vector<cuda::DnnDescriptor> operations_;
  std::deque<float> scalars_;
  std::vector<int64_t> numbers_;  // of tensors with a pointer
  std::vector<const void*> pointers_;
  std::optional<DnnDescriptor> pack_;
  cuda::DnnDescriptor plan_ = nullptr;
  int64_t next_number_ = 1;
};

// What choose() did not find, in words.
std::string lacks_engine(int64_t workspace_bytes, int64_t least);

}  // namespace lathe
