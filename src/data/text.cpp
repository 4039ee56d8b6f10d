#include "data/text.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/philox.h"
#include "data/fetch.h"
#include "data/file.h"

namespace lathe::data {
namespace {

constexpr uint32_t kTextStream = 0x74657874;  // "text"
constexpr int64_t kMaxTextBytes = int64_t{64} << 30;

class Text final : public Source {
 public:
  Text(std::string text, int64_t sequence, int64_t vocab, std::string name)
      : text_(std::move(text)), sequence_(sequence), vocab_(vocab), name_(std::move(name)) {
    fields_[0] = {"tokens", {DType::i32, {sequence}}};
    fields_[1] = {"targets", {DType::i32, {sequence}}};
  }

  int64_t size() const override { return (static_cast<int64_t>(text_.size()) - 1) / sequence_; }
  std::span<const Field> fields() const override { return fields_; }
  void read(int64_t index, SampleSpans fields) const override {
    LATHE_CHECK(index >= 0 && index < size(), "sample {} of {}", index, size());
    const char* window = text_.data() + index * sequence_;
    for (int64_t i = 0; i < sequence_; ++i) {
      const int32_t token = static_cast<unsigned char>(window[i]);
      const int32_t target = static_cast<unsigned char>(window[i + 1]);
      std::memcpy(fields[0].data() + i * 4, &token, 4);
      std::memcpy(fields[1].data() + i * 4, &target, 4);
    }
  }
  int64_t classes() const override { return vocab_; }
  std::string description() const override {
    return fmt::format("{} windows of {} byte tokens from {}", size(), sequence_, name_);
  }
  int64_t resident_bytes() const override { return static_cast<int64_t>(text_.size()); }

 private:
  std::string text_;
  int64_t sequence_, vocab_;
  std::string name_;
  Field fields_[2];
};

}  // namespace

SourceInfo describe_text(int64_t bytes, int64_t sequence, int64_t vocab, const std::string& name) {
  LATHE_USER_CHECK(sequence >= 1 && sequence <= INT32_MAX, "data.sequence: expected at least 1 token, got {}",
                   sequence);
  LATHE_USER_CHECK(vocab >= 1 && vocab <= 256, "model.vocab: expected 1 to 256 byte tokens, got {}", vocab);
  if (bytes <= sequence)
    throw Misfit({"data.sequence", "model.sequence"},
                 fmt::format("expected at most {} tokens, the bytes of {} less one, got {}",
                             std::max<int64_t>(bytes, 1) - 1, name, sequence));
  const TensorType window{DType::i32, {sequence}};
  return {window, vocab, (bytes - 1) / sequence, bytes, window};
}

std::unique_ptr<Source> make_text(std::string text, int64_t sequence, int64_t vocab, std::string name) {
  describe_text(static_cast<int64_t>(text.size()), sequence, vocab, name);
  const auto bad =
      std::find_if(text.begin(), text.end(), [&](char c) { return static_cast<unsigned char>(c) >= vocab; });
  if (bad != text.end())
    throw Misfit({"model.vocab"},
                 fmt::format("expected more than {}, the byte at {} of {}, got {}; 256 is enough for any text",
                             int{static_cast<unsigned char>(*bad)}, bad - text.begin(), name, vocab));
  return std::make_unique<Text>(std::move(text), sequence, vocab, std::move(name));
}

namespace {

int64_t train_bytes(int64_t bytes) { return bytes / 10 * 9; }
std::string part_name(const std::string& path, Split split) {
  return fmt::format("{} ({} part)", path, to_string(split));
}

}  // namespace

SourceInfo describe_text_file(const std::string& path, Split split, int64_t sequence, int64_t vocab) {
  const int64_t bytes = read_start(path, 0, fetch_hint(path)).file_bytes, cut = train_bytes(bytes);
  LATHE_USER_CHECK(bytes > 0, "{}: empty file", path);
  return describe_text(split == Split::train ? cut : bytes - cut, sequence, vocab, part_name(path, split));
}

std::unique_ptr<Source> load_text(const std::string& path, Split split, int64_t sequence, int64_t vocab) {
  const std::vector<std::byte> content = read_file(path, kMaxTextBytes, fetch_hint(path));
  LATHE_USER_CHECK(!content.empty(), "{}: empty file", path);
  const auto* begin = reinterpret_cast<const char*>(content.data());
  const auto cut = static_cast<size_t>(train_bytes(static_cast<int64_t>(content.size())));
  std::string text = split == Split::train ? std::string(begin, cut) : std::string(begin + cut, content.size() - cut);
  return make_text(std::move(text), sequence, vocab, part_name(path, split));
}

namespace {

// Calls add(piece) for the pieces of the text in order, until `size()` has reached `bytes`.
template <class Add, class Size>
void generate(int64_t bytes, uint64_t seed, Split split, Add&& add, Size&& size) {
  static constexpr std::string_view kAdjectives[] = {"red", "old", "small", "quiet", "bright", "round", "cold", "kind"};
  static constexpr std::string_view kNouns[] = {"lathe", "wheel", "river", "mason", "clock", "tower", "fox", "lamp"};
  static constexpr std::string_view kVerbs[] = {"turns", "finds", "holds", "follows", "cuts", "sees", "makes", "moves"};
  static constexpr std::string_view kEnds[] = {".\n", ", and ", ".\n", "; then "};
  for (uint64_t sentence = 0; size() < bytes; ++sentence) {
    const CounterRng rng(seed, kTextStream + (split == Split::test ? 1 : 0), static_cast<uint32_t>(sentence),
                         static_cast<uint32_t>(sentence >> 32));
    for (uint64_t phrase = 0; phrase < 2; ++phrase) {
      add("the ");
      add(kAdjectives[rng.below(4 * phrase, 8)]);
      add(" ");
      add(kNouns[rng.below(4 * phrase + 1, 8)]);
      if (phrase == 0) {
        add(" ");
        add(kVerbs[rng.below(2, 8)]);
        add(" ");
      }
    }
    add(kEnds[rng.below(3, 4)]);
  }
}

}  // namespace

std::string synthetic_text(int64_t bytes, uint64_t seed, Split split) {
  std::string text;
  generate(
      bytes, seed, split, [&](std::string_view piece) { text += piece; },
      [&] { return static_cast<int64_t>(text.size()); });
  return text;
}

int64_t synthetic_text_bytes(int64_t bytes, uint64_t seed, Split split) {
  int64_t size = 0;
  generate(
      bytes, seed, split, [&](std::string_view piece) { size += static_cast<int64_t>(piece.size()); },
      [&] { return size; });
  return size;
}

}  // namespace lathe::data
