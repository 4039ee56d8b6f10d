// Model families: functions that build the forward graph from a configuration. One file per family; the table is
// model.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "nn/families/layer_spec.h"
#include "nn/net.h"

namespace lathe {

struct ModelConfig {  // What a family builds: the section [model] of a recipe, and what the data add to it.
  std::string family = "mlp";
  int64_t classes = 10;  // outputs for each sample or token
  Ints hidden{512, 512};
  Ints channels{32, 64};
  int64_t dense = 128;
  double dropout = 0;
  bool batch_norm = true;
  std::string activation = "relu";
  int64_t layers = 4;
  std::vector<LayerSpec> layer_list{};  // of the family "layers"
  int64_t heads = 4;
  int64_t width = 128;
  int64_t sequence = 128;
  bool tokens = false;         // bert: samples are tokens, not rows of numbers
  int64_t padding = -1;        // bert: the token that fills short samples up; -1: none
  int64_t vocab = 256;         // bert: number of tokens; others have as many as classes
  int64_t depth = 18;          // resnet: 18, 34, 50, 101
  std::string stem = "small";  // or "imagenet"
  bool zero_init = false;      // resnet: residual branches start as zero
  double scale = 1;            // factor of the channels of resnet, mobilenetv2 and efficientnet
  int64_t variant = 0;         // efficientnet: lite 0 to 4
  int64_t patch = 4;
  std::string pool = "token";         // vit, bert: or "mean"
  std::string cell = "lstm";          // or "gru"
  int64_t feed_forward = 0;           // 0: 4 * width; with swiglu 8 / 3 of it, in eights
  std::string norm = "layer";         // gpt: or "rms"
  std::string positions = "learned";  // gpt: or "rotary"
  double rotary_base = 10000;
  std::string mlp = "gelu";                 // gpt: or "swiglu"
  int64_t kv_heads = 0;                     // gpt: of keys and values; 0: heads
  bool bias = true;                         // gpt: in dense layers
  bool tied = true;                         // gpt: the head has the token table as its weight
  bool pixels = false;                      // outputs are wanted for each pixel: masks and images
  std::vector<double> mean{0.0}, std{1.0};  // of the input's channels, after division by 255
};

enum class InputForm {  // What a family takes.
  image,                // u8 or f32 [H, W, C]
  tokens,               // i32 [T]
};

struct ModelFamily {      // A kind of network.
  std::string_view name;  // model.family in recipes
  std::string_view doc;   // one line
  InputForm input;        // `layers` and `bert`: see input_form
  // images: x is f32 [B, H, W, C], normalised; tokens: x is i32 [B, T]. Returns logits: [rows, classes]; rows are
  // samples, tokens or, with `pixels`, pixels.
  Value (*build)(Net&, const ModelConfig&, Value x);
  // A loss of its own, where train.loss is "auto"; null: that of the target. y is what build returned; target: classes
  // i32 [rows], or numbers f32 as y. One loss or more for each row; their sum is divided by the number of targets.
  Value (*loss)(Net&, const ModelConfig&, Value y, Value target) = nullptr;
};

std::span<const ModelFamily> model_families();          // the table, then families of one's own
const ModelFamily& find_family(std::string_view name);  // UserError listing the known ones
// Adds a family of one's own under a name that is not taken (UserError): from then on recipes may name it. All keys of
// [model] are its build function's to read. `name` and `doc` must live as long as the program. Before the first recipe
// is read; not for several threads at once.
void register_family(const ModelFamily&);
bool is_own_family(std::string_view name);  // by register_family
InputForm input_form(const ModelConfig&);   // of the family; a list of layers decides by its first, bert by `tokens`

Value build_mlp(Net&, const ModelConfig&, Value x);           // dense layers
Value build_cnn(Net&, const ModelConfig&, Value x);           // convolutions
Value build_resnet(Net&, const ModelConfig&, Value x);        // ResNet
Value build_mobilenetv2(Net&, const ModelConfig&, Value x);   // MobileNetV2
Value build_efficientnet(Net&, const ModelConfig&, Value x);  // EfficientNet-Lite
Value build_vit(Net&, const ModelConfig&, Value x);           // vision transformer
Value build_bert(Net&, const ModelConfig&, Value x);          // encoder transformer
Value build_unet(Net&, const ModelConfig&, Value x);          // U-Net
Value build_lstm(Net&, const ModelConfig&, Value x);          // LSTM or GRU layers
Value build_gpt(Net&, const ModelConfig&, Value x);           // GPT-2, LLaMA

}  // namespace lathe
