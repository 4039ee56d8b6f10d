#include "nn/model.h"

#include <fmt/format.h>

namespace lathe {
namespace {

constexpr ModelFamily kFamilies[] = {
    {"mlp", "dense layers on flattened images", InputForm::image, build_mlp},
    {"cnn", "convolution, norm, activation and pooling blocks, then dense layers", InputForm::image, build_cnn},
    {"gpt", "decoder-only transformer with tied embeddings", InputForm::tokens, build_gpt},
};

}  // namespace

std::span<const ModelFamily> model_families() { return kFamilies; }

const ModelFamily& find_family(std::string_view name) {
  std::vector<std::string_view> names;
  for (const ModelFamily& f : kFamilies) {
    if (f.name == name) return f;
    names.push_back(f.name);
  }
  throw UserError(fmt::format("model.family: expected one of {}, got \"{}\"", fmt::join(names, ", "), name),
                  Exit::bad_recipe);
}

}  // namespace lathe
