#include "nn/families/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "nn/families/layer_list.h"

namespace lathe {
namespace {

constexpr ModelFamily kFamilies[] = {
    {"mlp", "dense layers on flattened images", InputForm::image, build_mlp},
    {"cnn", "convolution, norm, activation and pooling blocks, then dense layers", InputForm::image, build_cnn},
    {"resnet", "residual convolutions: ResNet-18, 34, 50, 101", InputForm::image, build_resnet},
    {"mobilenetv2", "inverted residuals with depthwise convolutions", InputForm::image, build_mobilenetv2},
    {"efficientnet", "EfficientNet-Lite 0 to 4", InputForm::image, build_efficientnet},
    {"vit", "transformer over patches of an image", InputForm::image, build_vit},
    {"bert", "encoder transformer over tokens, or over the rows of a series or image", InputForm::image, build_bert},
    {"unet", "convolutions to smaller images and back, an output for each pixel", InputForm::image, build_unet},
    {"lstm", "recurrent network over the rows of an image", InputForm::image, build_lstm},
    {"gpt", "decoder-only transformer: GPT-2, or in the manner of LLaMA", InputForm::tokens, build_gpt},
    {"layers", "the layers of [[model.layers]], one after another", InputForm::image, build_layers},
};

std::vector<ModelFamily>& families() {
  static std::vector<ModelFamily> all(std::begin(kFamilies), std::end(kFamilies));
  return all;
}

}  // namespace

std::span<const ModelFamily> model_families() { return families(); }

void register_family(const ModelFamily& f) {
  LATHE_USER_CHECK(!f.name.empty() && f.build, "a model family needs a name and a build function");
  LATHE_USER_CHECK(std::ranges::find(families(), f.name, &ModelFamily::name) == families().end(),
                   "model family \"{}\": the name is taken", f.name);
  families().push_back(f);
}

bool is_own_family(std::string_view name) {
  const auto own = model_families().subspan(std::size(kFamilies));
  return std::ranges::find(own, name, &ModelFamily::name) != own.end();
}

const ModelFamily& find_family(std::string_view name) {
  std::vector<std::string_view> names;
  for (const ModelFamily& f : families()) {
    if (f.name == name) return f;
    names.push_back(f.name);
  }
  throw UserError(fmt::format("model.family: expected one of {}, got \"{}\"", fmt::join(names, ", "), name),
                  Exit::bad_recipe);
}

InputForm input_form(const ModelConfig& c) {
  if (c.family == "layers") return takes_tokens(c.layer_list) ? InputForm::tokens : InputForm::image;
  if (c.family == "bert") return c.tokens ? InputForm::tokens : InputForm::image;
  return find_family(c.family).input;
}

}  // namespace lathe
