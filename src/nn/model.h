// Model families: functions that build the forward graph from a configuration. One file per family; the table is
// model.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "nn/net.h"

namespace lathe {

struct ModelConfig {
  std::string family = "mlp";
  int64_t classes = 10;
  Ints hidden{512, 512};
  Ints channels{32, 64};
  int64_t dense = 128;
  double dropout = 0;
  bool batch_norm = true;
  std::string activation = "relu";
  int64_t layers = 4;
  int64_t heads = 4;
  int64_t width = 128;
  int64_t sequence = 128;
  std::vector<double> mean{0.0}, std{1.0};  // of the input's channels, after division by 255
};

enum class InputForm {
  image,   // u8 [H, W, C] with a class label
  tokens,  // i32 [T] with a label per token
};

struct ModelFamily {
  std::string_view name;
  std::string_view doc;
  InputForm input;
  // images: x is f32 [B, H, W, C], normalised; tokens: x is i32 [B, T]. Returns logits: [rows, classes].
  Value (*build)(Net&, const ModelConfig&, Value x);
};

std::span<const ModelFamily> model_families();
const ModelFamily& find_family(std::string_view name);  // UserError listing the known ones

Value build_mlp(Net&, const ModelConfig&, Value x);
Value build_cnn(Net&, const ModelConfig&, Value x);
Value build_gpt(Net&, const ModelConfig&, Value x);

}  // namespace lathe
