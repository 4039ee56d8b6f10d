// Layers: functions that append a layer's nodes and its state to a net. Images are channels-last.
#pragma once

#include <string>

#include "nn/net.h"

namespace lathe {

// x [..., in] -> [..., out]. Weight [out, in] as in PyTorch, started as PyTorch starts it.
Value linear(Net&, const std::string& name, Value x, int64_t out, bool bias = true);
// The same for x [B, H, W, C] flattened to one row per sample; in files the weight has PyTorch's (C, H, W) order.
Value linear_of_image(Net&, const std::string& name, Value x, int64_t out, bool bias = true);

struct ConvOptions {     // Settings of conv2d.
  int64_t kernel = 3;    // side of the window
  int64_t stride = 1;    // of the window
  int64_t padding = 1;   // at each side; -1: the output is the input / stride large, rounded up
  int64_t dilation = 1;  // distance of the window's elements
  int64_t groups = 1;    // of channels that see each other
  bool bias = true;      // added to each channel
  bool he = false;       // weights start normal, with He's deviation for the fan-out, instead of as PyTorch's default
};
// x [B, H, W, C] -> [B, H', W', out]. Weight OHWI in memory, OIHW in files.
Value conv2d(Net&, const std::string& name, Value x, int64_t out, const ConvOptions&);

// x [B, T, C] -> [B, T', out]; causal: all padding stands before the first position, whatever `padding` says. Weight
// OKI in memory, OIK in files.
Value conv1d(Net&, const std::string& name, Value x, int64_t out, const ConvOptions&, bool causal = false);

struct ConvTransposeOptions {  // Settings of conv_transpose2d.
  int64_t kernel = 2;          // side of the window
  int64_t stride = 2;          // by which the image grows
  int64_t padding = 0;         // of the convolution whose sizes are turned round: cut off at each side
  int64_t extra = 0;           // rows and columns more, below and right
  int64_t groups = 1;          // of channels that see each other
  bool bias = true;            // added to each channel
};
// x [B, H, W, C] -> [B, (H - 1) stride - 2 padding + kernel + extra, ..., out]. Weight IHWO in memory, IOHW in files.
Value conv_transpose2d(Net&, const std::string& name, Value x, int64_t out, const ConvTransposeOptions&);

Value max_pool2d(Value x, int64_t kernel, int64_t stride, int64_t padding = 0);  // largest of each window

// Over all axes but the last; running statistics with momentum 0.1 (unbiased variance), as PyTorch's. `scale` is what
// the factor starts with.
Value batch_norm(Net&, const std::string& name, Value x, double scale = 1);
Value layer_norm(Net&, const std::string& name, Value x, double eps = 1e-5);  // over the last axis
Value rms_norm(Net&, const std::string& name, Value x);                       // over the last axis, without a mean
// Over groups of channels and all places.
Value group_norm(Net&, const std::string& name, Value x, int64_t groups, double eps = 1e-5);
Value instance_norm(Net&, const std::string& name, Value x, double eps = 1e-5);  // each channel over all places
Value prelu(Net&, const std::string& name, Value x);  // leaky_relu with a slope for each channel that is learnt

// What stands before and after an axis of length n for a window that reaches over `reach` of it; `padding` as above.
struct AxisPad {
  int64_t before, after;  // elements of padding
};
AxisPad axis_pad(int64_t n, int64_t reach, int64_t stride, int64_t padding);  // see AxisPad

Value dropout(Net&, Value x, double rate);  // identity in eval mode

// ids i32 [...] -> [..., width]; *weight (optional) receives the table, for tied heads.
Value embedding(Net&, const std::string& name, Value ids, int64_t count, int64_t width, Value* weight = nullptr);

struct AttentionOptions {  // Settings of self_attention.
  int64_t heads = 1;       // of queries
  int64_t kv_heads = 0;    // of keys and values, each for heads / kv_heads heads of queries; 0: heads
  bool causal = false;     // tokens see those before them alone
  bool bias = true;        // in both projections
  double rotary_base = 0;  // above 0: queries and keys are turned by their positions
  double dropout = 0;      // of the attention weights
  // What stands between `name` and "weight" or "bias" of the two projections.
  std::string in = ".c_attn.", out = ".c_proj.";  // between name and weight
};
// Self-attention of x [B, T, C]: one projection to queries, keys and values, attention, projection.
Value self_attention(Net&, const std::string& name, Value x, const AttentionOptions&);

// One layer of an LSTM, or of a GRU, over rows [B, C]: its states [B, width]. There are no loops in a graph: each row
// is a node of its own. `suffix` ends the names of the weights: "_l0".
Values recurrent(Net&, const std::string& name, const std::string& suffix, const Values& rows, int64_t width, bool gru);

// "relu6", "elu", "leaky_relu", or any unary elementwise op: "relu", "gelu", ...
Value activation(const std::string& name, Value x);

}  // namespace lathe
