// Matrix products through cuBLASLt: d = act(a b + c + bias) for row-major matrices, in batches.
//
// cuBLASLt thinks in columns. A row-major m x n matrix is a column-major n x m one with leading dimension n, so the
// call computes d^T = op(b)^T op(a)^T: its A is our b, its B is our a, and its rows are our columns. A bias per column
// of ours is what it calls a bias: one value per row of its D.
#pragma once

#include <array>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_site.h"

namespace lathe {

struct CudaMatmulSpec {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;  // as MatmulParams
  int type = cuda::kR32F;                 // cuda::DataType of all matrices; sums are f32, or f64 for f64
  bool tf32 = false;                      // f32 inputs may be rounded to 10 bits of mantissa
  bool bias = false, add_c = false;
  // Applied last. gelu is the tanh approximation, for the library as for Lathe's op.
  using Activation = HeadChain::Activation;
  Activation activation = Activation::none;
  // What training adds. aux is [m, n], the value that gelu is applied to; the library wants n to be a multiple of 8.
  bool keep_input = false;     // with gelu: aux is written
  bool gelu_gradient = false;  // d = a b * gelu_slope(aux)
  // Written where a bias would be read: the sum over m of d (with gelu_gradient), or over k of one operand.
  enum class BiasGradient { none, of_d, of_a, of_b } bias_gradient = BiasGradient::none;
};
constexpr int64_t kGeluColumns = 8;

// One product with its algorithm chosen. Descriptors live as long as the object; run() only launches.
class CudaMatmul {
 public:
  // Addresses of a, b, d, and of c, bias and aux where the spec has them.
  struct Operands {
    cuda::Address a = 0, b = 0, c = 0, d = 0, bias = 0, aux = 0, workspace = 0;
    int64_t workspace_bytes = 0;
  };
  // DeviceError when the library offers no algorithm within the workspace.
  CudaMatmul(CudaDevice&, const CudaMatmulSpec&, const Operands&);
  // Null instead; DeviceError for other failures.
  static std::unique_ptr<CudaMatmul> make_if_offered(CudaDevice&, const CudaMatmulSpec&, const Operands&);
  void run(cuda::StreamHandle) const;

 private:
  struct Unchosen {};
  CudaMatmul(CudaDevice&, const CudaMatmulSpec&, const Operands&, Unchosen);
  void make_descriptors(const CudaMatmulSpec&);
  bool choose(int* status);

  struct Descriptors {
    const cuda::Api& api;
    cuda::LtMatmulDesc matmul = nullptr;
    std::array<cuda::LtLayout, 3> layout{};  // b, a, d; c has the layout of d
    explicit Descriptors(const cuda::Api& a) : api(a) {}
    Descriptors(const Descriptors&) = delete;
    ~Descriptors();
  };

  CudaDevice& device_;
  Operands at_;
  Descriptors desc_;
  cuda::LtAlgo algo_{};
  double alpha_[1] = {}, beta_[1] = {};  // bytes of the scale type
};

std::vector<KernelTable::Row> cuda_matmul_rows();

}  // namespace lathe
