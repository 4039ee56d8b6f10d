// Layers: functions that append a layer's nodes and its state to a net. Images are channels-last.
#pragma once

#include <string>

#include "nn/net.h"

namespace lathe {

// x [..., in] -> [..., out]. Weight [out, in] as in PyTorch, started as PyTorch starts it.
Value linear(Net&, const std::string& name, Value x, int64_t out, bool bias = true);
// The same for x [B, H, W, C] flattened to one row per sample; in files the weight has PyTorch's (C, H, W) order.
Value linear_of_image(Net&, const std::string& name, Value x, int64_t out);

struct ConvOptions {
  int64_t kernel = 3;
  int64_t stride = 1;
  int64_t padding = 1;
  int64_t dilation = 1;
  int64_t groups = 1;
  bool bias = true;
};
// x [B, H, W, C] -> [B, H', W', out]. Weight OHWI in memory, OIHW in files.
Value conv2d(Net&, const std::string& name, Value x, int64_t out, const ConvOptions&);

Value max_pool2d(Value x, int64_t kernel, int64_t stride);

// Over all axes but the last; running statistics with momentum 0.1 (unbiased variance), as PyTorch's.
Value batch_norm(Net&, const std::string& name, Value x);
Value layer_norm(Net&, const std::string& name, Value x);

Value dropout(Net&, Value x, double rate);  // identity in eval mode

// ids i32 [...] -> [..., width]; *weight (optional) receives the table, for tied heads.
Value embedding(Net&, const std::string& name, Value ids, int64_t count, int64_t width, Value* weight = nullptr);

// Causal self-attention of x [B, T, C] with `heads` heads: qkv, attention, projection.
Value causal_attention(Net&, const std::string& name, Value x, int64_t heads, double dropout_rate);

Value activation(const std::string& name, Value x);  // "relu", "gelu", ...: any unary elementwise op

}  // namespace lathe
