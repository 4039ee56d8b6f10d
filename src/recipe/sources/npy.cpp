// Arrays in files: images, numbers or tokens.
#include "data/formats/npy.h"

#include "data/file.h"
#include "recipe/recipe_keys.h"
#include "recipe/sources/fields.h"
#include "recipe/sources/preparation.h"
#include "recipe/sources/source.h"

namespace lathe {
namespace {

struct Npy {
  static constexpr SourceFacts facts{
      .name = "npy",
      .targets = {data::LabelKind::class_index, data::LabelKind::value, data::LabelKind::mask, data::LabelKind::image},
      .path = "an npz file or a folder of npy files",
      .tokens = SourceTokens::per_sample,
      .numbers = true};

  struct Params : data::NpyConfig {
    static void fields(auto&& f) { number_fields<Params>(f); }
  };

  // What all sources have is added to the settings.
  static data::NpyConfig config(const Recipe& r) {
    data::NpyConfig c = r.data.source.params.as<Params>();
    c.path = r.data.path;
    c.label = label_kind_of(r);
    c.classes = r.data.classes;
    c.vocab = takes_tokens(r) ? tokens_of(r).vocab : 0;
    return c;
  }

  static data::SourceInfo describe(const Recipe& r, data::Split split) { return data::describe_npy(config(r), split); }

  static std::shared_ptr<const data::Source> open(const Recipe& r, data::Split split, Preparation& learned) {
    return data::load_npy(config(r), split, &learned.numbers);
  }

  static bool has_test(const Recipe& r) { return data::has_npy_test(r.data.path); }

  static void learn(const Recipe& r, Preparation& learned) { learned.numbers = data::learn_npy(config(r)); }

  static std::optional<data::Samples> read_file(const Recipe& r, const Preparation& known, const std::string& path) {
    if (!data::is_npy(data::read_start(path, 16).bytes)) return std::nullopt;
    return data::read_npy_samples(config(r), known.numbers, path);
  }
};

}  // namespace

extern const SourceRule npy_source;
constinit const SourceRule npy_source = make_source<Npy>();

}  // namespace lathe
