// Matrix multiplies of other libraries, opened at run time: what Lathe's own is compared with. Nothing else in Lathe
// uses them, and neither headers nor libraries are needed to build.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace lathe {

// C[m, n] = A[m, k] B[k, n] in f32, dense and row-major; a transposed operand is stored as [k, m] or [n, k].
// The matrices of a batch follow each other.
struct GemmProblem {
  int64_t m = 0, n = 0, k = 0, batch = 1;
  bool trans_a = false, trans_b = false;
  const float* a = nullptr;
  const float* b = nullptr;
  float* c = nullptr;

  double flops() const {
    return 2.0 * static_cast<double>(batch * m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

class GemmPeer {
 public:
  virtual ~GemmPeer() = default;
  // Everything that a caller would do once per shape. Returns the reason where the library cannot do it, or "".
  virtual std::string prepare(const GemmProblem&) = 0;
  virtual void run() = 0;  // the product of the problem prepared last; returns when C is complete
};

struct PeerLibrary {
  std::string name;     // "OpenBLAS"
  std::string version;  // as the library gives it
  std::string missing;  // why it is not there, and how to get it; empty: it is there
  std::unique_ptr<GemmPeer> gemm;
};

// `path`: the library's file; empty: libopenblas.so.0 or libdnnl.so.3 by the system's search.
PeerLibrary open_openblas(const std::string& path, int threads);
PeerLibrary open_onednn(const std::string& path, int threads);

}  // namespace lathe
