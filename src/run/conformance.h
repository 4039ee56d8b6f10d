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

struct OpConformance {                 // One op on a device.
  std::string op;                      // its name
  std::vector<std::string> kernels;    // that ran
  int passed = 0, failed = 0;          // samples times kernels
  int declined = 0;                    // samples that no kernel accepts
  double max_error = 0;                // of those that passed or failed, relative to the tensor
  std::vector<std::string> failures;   // "sample, kernel: output 0 has relative error 0.1, 2e-05 is allowed"
  struct Decline {                     // Samples with one reason.
    std::string reason;                // the kernels' words
    std::vector<std::string> samples;  // their labels
  };
  std::vector<Decline> declines;  // all reasons
};

struct ConformanceReport {         // All ops on a device.
  std::string device;              // its name
  std::vector<OpConformance> ops;  // by name
  int passed() const;              // over all ops
  int failed() const;              // over all ops
  int declined() const;            // over all ops
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
ErrorClass error_class(const OpDef&);  // of an op
double tolerance(DType, ErrorClass);   // relative, for a type and a class

}  // namespace lathe
