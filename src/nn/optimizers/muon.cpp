// muon: momentum of a matrix, made nearly orthogonal by a Newton-Schulz iteration (Jordan et al., 2024). Tensors of
// more axes are matrices of axis 0 by all others. Steps are scaled to the root mean square of AdamW's (Liu et al.,
// 2025), so that learning rate and decay are those of AdamW, which updates embeddings and vectors.
#include <algorithm>
#include <cmath>

#include "nn/optimizers/rules.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reshape.h"

namespace lathe {
namespace {

constexpr int kIterations = 5;
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;  // Jordan's: fast for small singular values
constexpr double kSmallestNorm = 1e-7, kAdamRms = 0.2;

// U V^T of x = U S V^T, nearly: singular values end between 0.7 and 1.2.
Value orthogonalised(Value x) {
  const Value norm = l2_norm(x);
  x = x / maximum(norm, constant_like(norm, kSmallestNorm));
  const bool tall = x.dim(0) > x.dim(1);  // the smaller of the two products is formed
  for (int i = 0; i < kIterations; ++i) {
    const Value a = matmul(x, x, tall, !tall);
    const Value b = a * kB + matmul(a, a) * kC;
    x = x * kA + (tall ? matmul(x, b) : matmul(b, x));
  }
  return x;
}

}  // namespace

Value build_muon(ParamUpdate& u) {
  if (!u.is_matrix() || u.table) return build_adamw(u);
  const Value buffer = u.state("momentum_buffer");
  const Value m = buffer + (u.g - buffer) * (1 - u.c.momentum);
  u.set(buffer, m);
  const Value direction = u.c.nesterov ? u.g + (m - u.g) * u.c.momentum : m;
  const Value step = orthogonalised(u.matrix(direction));
  const double scale = kAdamRms * std::sqrt(static_cast<double>(std::max(step.dim(0), step.dim(1))));
  return u.decayed() - u.lr * scale * reshape(step, u.p.shape());
}

}  // namespace lathe
