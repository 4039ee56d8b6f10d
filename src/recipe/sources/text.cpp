// Bytes of a text file, or of generated text: each is to be predicted from those before it.
#include "data/text.h"

#include <fmt/format.h>

#include "recipe/sources/source.h"

namespace lathe {
namespace {

struct Text {
  static constexpr SourceFacts facts{.name = "text",
                                     .targets = {data::LabelKind::class_index},
                                     .tokens = SourceTokens::per_position,
                                     .generates = true,
                                     .images = false};
  static constexpr int64_t kMostTokens = 256;  // as many as bytes
  // Generated text is the same for every seed: a run's seed moves weights and order, not the task.
  static constexpr uint64_t kSeed = 0;
  static constexpr const char* kGenerated = "generated text";

  static int64_t bytes(data::Split split) { return split == data::Split::train ? 1 << 20 : 1 << 17; }

  struct Params {
    int64_t sequence = 0;

    static void fields(auto&& f) {
      f("sequence", &Params::sequence, allow::range(0, 1 << 20), "tokens per sample; 0: model.sequence")
          .listed_after("data.validation");
    }
  };

  static void check(const Recipe& r, RuleReport& report) {
    const std::optional<TokenInput> tokens = token_input(r.model);
    if (!tokens) return;
    if (const int64_t n = r.data.source.params.as<Params>().sequence; n > tokens->positions)
      report.fail({"data.sequence", "model.sequence"},
                  fmt::format("expected at most model.sequence = {}, got {}", tokens->positions, n));
    if (tokens->vocab > kMostTokens)
      report.fail({"model.vocab"},
                  fmt::format("expected at most {} for byte tokens, got {}", kMostTokens, tokens->vocab));
  }

  static data::SourceInfo describe(const Recipe& r, data::Split split) {
    const int64_t vocab = tokens_of(r).vocab;
    if (!r.data.path.empty()) return data::describe_text_file(r.data.path, split, sequence_of(r), vocab);
    return data::describe_text(data::synthetic_text_bytes(bytes(split), kSeed, split), sequence_of(r), vocab,
                               kGenerated);
  }

  static std::shared_ptr<const data::Source> open(const Recipe& r, data::Split split, Preparation&) {
    const int64_t vocab = tokens_of(r).vocab;
    if (!r.data.path.empty()) return data::load_text(r.data.path, split, sequence_of(r), vocab);
    return data::make_text(data::synthetic_text(bytes(split), kSeed, split), sequence_of(r), vocab, kGenerated);
  }
};

}  // namespace

extern const SourceRule text_source;
constinit const SourceRule text_source = make_source<Text>();

}  // namespace lathe
