// The matrix multiplies of the benchmark workloads' training steps: what gemm is tuned for and measured on.
// Forward y = x w^T, dx = dy w, dw = dy^T x, with w [out, in] and x [tokens or samples, in].
#pragma once

#include <cstdint>
#include <string_view>

namespace lathe::cpu {

struct NamedGemmShape {
  std::string_view name;
  int64_t m, n, k;
  bool trans_a, trans_b;  // stored as [k, m], [n, k]
  int64_t batch = 1;
};

inline constexpr NamedGemmShape kGemmShapes[] = {
    {"mlp/fc1/forward", 128, 512, 784, false, true},
    {"mlp/fc1/dw", 512, 784, 128, true, false},
    {"mlp/fc2/forward", 128, 512, 512, false, true},
    {"mlp/fc2/dx", 128, 512, 512, false, false},
    {"mlp/fc2/dw", 512, 512, 128, true, false},
    {"mlp/fc3/forward", 128, 10, 512, false, true},
    {"mlp/fc3/dx", 128, 512, 10, false, false},
    {"mlp/fc3/dw", 10, 512, 128, true, false},
    {"cnn/fc1/forward", 128, 128, 3136, false, true},
    {"cnn/fc1/dx", 128, 3136, 128, false, false},
    {"cnn/fc1/dw", 128, 3136, 128, true, false},
    {"cnn/fc2/forward", 128, 10, 128, false, true},
    {"cnn/fc2/dx", 128, 128, 10, false, false},
    {"cnn/fc2/dw", 10, 128, 128, true, false},
    {"gpt-mini/qkv/forward", 2048, 1152, 384, false, true},
    {"gpt-mini/qkv/dx", 2048, 384, 1152, false, false},
    {"gpt-mini/qkv/dw", 1152, 384, 2048, true, false},
    {"gpt-mini/o/forward", 2048, 384, 384, false, true},
    {"gpt-mini/o/dx", 2048, 384, 384, false, false},
    {"gpt-mini/o/dw", 384, 384, 2048, true, false},
    {"gpt-mini/up/forward", 2048, 1536, 384, false, true},
    {"gpt-mini/up/dx", 2048, 384, 1536, false, false},
    {"gpt-mini/up/dw", 1536, 384, 2048, true, false},
    {"gpt-mini/down/forward", 2048, 384, 1536, false, true},
    {"gpt-mini/down/dx", 2048, 1536, 384, false, false},
    {"gpt-mini/down/dw", 384, 1536, 2048, true, false},
    {"gpt-mini/head/forward", 2048, 256, 384, false, true},
    {"gpt-mini/head/dx", 2048, 384, 256, false, false},
    {"gpt-mini/head/dw", 256, 384, 2048, true, false},
    {"gpt-mini/scores/forward", 256, 256, 64, false, true, 48},
    {"gpt-mini/values/forward", 256, 64, 256, false, false, 48},
    {"gpt-mini/values/dw", 256, 64, 256, true, false, 48},
    {"gpt2-124m/qkv/forward", 256, 2304, 768, false, true},
    {"gpt2-124m/qkv/dx", 256, 768, 2304, false, false},
    {"gpt2-124m/qkv/dw", 2304, 768, 256, true, false},
    {"gpt2-124m/o/forward", 256, 768, 768, false, true},
    {"gpt2-124m/o/dx", 256, 768, 768, false, false},
    {"gpt2-124m/o/dw", 768, 768, 256, true, false},
    {"gpt2-124m/up/forward", 256, 3072, 768, false, true},
    {"gpt2-124m/up/dx", 256, 768, 3072, false, false},
    {"gpt2-124m/up/dw", 3072, 768, 256, true, false},
    {"gpt2-124m/down/forward", 256, 768, 3072, false, true},
    {"gpt2-124m/down/dx", 256, 3072, 768, false, false},
    {"gpt2-124m/down/dw", 768, 3072, 256, true, false},
    {"gpt2-124m/head/forward", 256, 50257, 768, false, true},
    {"gpt2-124m/head/dx", 256, 768, 50257, false, false},
    {"gpt2-124m/head/dw", 50257, 768, 256, true, false},
    {"gpt2-124m/scores/forward", 64, 64, 64, false, true, 48},
    {"gpt2-124m/values/forward", 64, 64, 64, false, false, 48},
    {"gpt2-124m/values/dw", 64, 64, 64, true, false, 48},
};

}  // namespace lathe::cpu
