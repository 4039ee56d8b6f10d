#include "data/text.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/philox.h"
#include "data/file.h"

namespace lathe::data {
namespace {

constexpr uint32_t kTextStream = 0x74657874;  // "text"
constexpr int64_t kMaxFileBytes = int64_t{64} << 30;

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

std::unique_ptr<Source> make_text(std::string text, int64_t sequence, int64_t vocab, std::string name) {
  LATHE_USER_CHECK(sequence >= 1 && sequence <= INT32_MAX, "data.sequence: expected at least 1 token, got {}",
                   sequence);
  LATHE_USER_CHECK(vocab >= 1 && vocab <= 256, "model.vocab: expected 1 to 256 byte tokens, got {}", vocab);
  LATHE_USER_CHECK(static_cast<int64_t>(text.size()) > sequence,
                   "{}: no samples: expected more than {} bytes (data.sequence), got {}", name, sequence, text.size());
  const auto bad =
      std::find_if(text.begin(), text.end(), [&](char c) { return static_cast<unsigned char>(c) >= vocab; });
  LATHE_USER_CHECK(bad == text.end(), "{}: expected bytes in [0, {}), got {} at byte {}; set model.vocab to 256", name,
                   vocab, int{static_cast<unsigned char>(*bad)}, bad - text.begin());
  return std::make_unique<Text>(std::move(text), sequence, vocab, std::move(name));
}

std::unique_ptr<Source> load_text(const std::string& path, Split split, int64_t sequence, int64_t vocab) {
  const std::vector<std::byte> content = read_file(path, kMaxFileBytes, "set data.path to a text file");
  const auto* begin = reinterpret_cast<const char*>(content.data());
  const size_t cut = content.size() / 10 * 9;
  std::string text = split == Split::train ? std::string(begin, cut) : std::string(begin + cut, content.size() - cut);
  return make_text(std::move(text), sequence, vocab, fmt::format("{} ({} part)", path, to_string(split)));
}

std::string synthetic_text(int64_t bytes, uint64_t seed, Split split) {
  static constexpr std::string_view kAdjectives[] = {"red", "old", "small", "quiet", "bright", "round", "cold", "kind"};
  static constexpr std::string_view kNouns[] = {"lathe", "wheel", "river", "mason", "clock", "tower", "fox", "lamp"};
  static constexpr std::string_view kVerbs[] = {"turns", "finds", "holds", "follows", "cuts", "sees", "makes", "moves"};
  static constexpr std::string_view kEnds[] = {".\n", ", and ", ".\n", "; then "};
  std::string text;
  for (uint64_t sentence = 0; static_cast<int64_t>(text.size()) < bytes; ++sentence) {
    const CounterRng rng(seed, kTextStream + (split == Split::test ? 1 : 0), static_cast<uint32_t>(sentence),
                         static_cast<uint32_t>(sentence >> 32));
    for (uint64_t phrase = 0; phrase < 2; ++phrase) {
      text += "the ";
      text += kAdjectives[rng.below(4 * phrase, 8)];
      text += ' ';
      text += kNouns[rng.below(4 * phrase + 1, 8)];
      if (phrase == 0) {
        text += ' ';
        text += kVerbs[rng.below(2, 8)];
        text += ' ';
      }
    }
    text += kEnds[rng.below(3, 4)];
  }
  return text;
}

}  // namespace lathe::data
