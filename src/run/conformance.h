// The conformance suite: every op's samples, through every kernel of a backend that accepts them, on a real device,
// against the reference loops. `lathe selftest --device X` prints its table; it is the first thing to run on a new
// machine.
//
// Each sample is a graph of one node. The arena is filled with NaN patterns before it runs and compared after: a kernel
// that leaves elements of its result unwritten, or writes beside its result and workspace, fails.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"

namespace lathe {

struct OpConformance {
  std::string op;
  std::vector<std::string> kernels;  // that ran
  int passed = 0, failed = 0;
  int declined = 0;                   // samples that no kernel accepts
  double max_error = 0;               // of those that passed or failed, relative to the tensor
  std::vector<std::string> failures;  // "sample, kernel: output 0 has relative error 0.1, 2e-05 is allowed"
  struct Decline {
    std::string reason;
    std::vector<std::string> samples;
  };
  std::vector<Decline> declines;
};

struct ConformanceReport {
  std::string device;
  std::vector<OpConformance> ops;
  int passed() const;
  int failed() const;
  int declined() const;
};

// `filter`: run only ops whose name contains it. Throws only when the device cannot be opened or its memory not be had.
ConformanceReport run_conformance(const Backend&, const DeviceOptions&, std::string_view filter = "");
std::string to_text(const ConformanceReport&);  // a table, then failures and reasons

// Relative error that a device may make in an op of this class.
enum class ErrorClass {
  exact,        // moves data, or counts
  elementwise,  // one expression per element
  sum,          // products, reductions, norms: many terms
};
ErrorClass error_class(const OpDef&);
double tolerance(DType, ErrorClass);

}  // namespace lathe
