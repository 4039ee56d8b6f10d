// Runs many one-node graphs on an OpenCL device in one go, so that all their kernels are compiled in one build, and
// compares with the reference interpreter. Guard bytes stand around every buffer.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "backend/opencl/opencl_device.h"
#include "ir/interpret.h"

namespace lathe {

// The device to test on, or null with a reason for GTEST_SKIP.
std::unique_ptr<OpenClDevice> open_test_device(OpenClDeviceOptions, std::string* reason);

class DeviceBatch {
 public:
  explicit DeviceBatch(OpenClDevice& device) : device_(device) {}

  // A graph of one node. Returns "" or why the kernels decline.
  std::string add(std::string label, Graph, std::vector<HostTensor> inputs);
  // Allocates, uploads, binds, runs and compares everything; failures are gtest's. Returns the outputs' bytes.
  std::vector<std::vector<std::byte>> run(double tolerance);
  size_t size() const { return jobs_.size(); }

 private:
  struct Job {
    std::string label;
    Graph graph;
    std::vector<HostTensor> inputs;
    Candidate candidate;
    KernelArgs args;
    std::unique_ptr<Kernel> kernel;
  };
  Buffer reserve(int64_t bytes);

  OpenClDevice& device_;
  std::vector<Job> jobs_;
  int64_t used_ = 0;
};

}  // namespace lathe
