// Bytes of a text file, or of generated text: each is to be predicted from those before it.
#include "data/text.h"

#include "recipe/sources/source.h"

namespace lathe {
namespace {

struct Text {
  static constexpr SourceFacts facts{
      .name = "text", .targets = " class ", .tokens = SourceTokens::per_position, .images = false, .most_tokens = 256};
  // Generated text is the same for every seed: a run's seed moves weights and order, not the task.
  static constexpr uint64_t kSeed = 0;
  static constexpr const char* kGenerated = "generated text";

  static int64_t bytes(data::Split split) { return split == data::Split::train ? 1 << 20 : 1 << 17; }
  static int64_t sequence(const Recipe& r) { return r.data.sequence > 0 ? r.data.sequence : tokens_of(r).positions; }

  static data::SourceInfo describe(const Recipe& r, data::Split split) {
    const int64_t vocab = tokens_of(r).vocab;
    if (!r.data.path.empty()) return data::describe_text_file(r.data.path, split, sequence(r), vocab);
    return data::describe_text(data::synthetic_text_bytes(bytes(split), kSeed, split), sequence(r), vocab, kGenerated);
  }

  static std::shared_ptr<const data::Source> open(const Recipe& r, data::Split split, Preparation&) {
    const int64_t vocab = tokens_of(r).vocab;
    if (!r.data.path.empty()) return data::load_text(r.data.path, split, sequence(r), vocab);
    return data::make_text(data::synthetic_text(bytes(split), kSeed, split), sequence(r), vocab, kGenerated);
  }
};

}  // namespace

extern const SourceRule text_source;
constinit const SourceRule text_source = make_source<Text>();

}  // namespace lathe
