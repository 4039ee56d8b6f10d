#include "data/formats/pnm.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "data/file.h"

namespace lathe::data {
namespace {

constexpr int64_t kMaxHeaderBytes = 1 << 16;  // comments included
constexpr int64_t kMaxPnmSide = 1 << 16;
constexpr int64_t kMaxPnmBytes = int64_t{1} << 30;

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class HeaderReader {
 public:
  HeaderReader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  // A number after white space and comments, at most `max`, and with at least one more byte after it: at the end of the
  // text nobody knows whether the number continues.
  int64_t number(std::string_view what, int64_t max) {
    const size_t start = at_;
    while (at_ < text_.size() && (is_space(text_[at_]) || text_[at_] == '#')) {
      if (text_[at_] == '#')
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      else
        ++at_;
    }
    LATHE_USER_CHECK(at_ < text_.size(), "{}: the header ends at byte {}, expected the {}", name_, at_, what);
    LATHE_USER_CHECK(at_ > start && is_digit(text_[at_]), "{}: byte {}: expected the {}, a number", name_, at_, what);
    int64_t value = 0;
    for (; at_ < text_.size() && is_digit(text_[at_]); ++at_) {
      value = value * 10 + (text_[at_] - '0');
      LATHE_USER_CHECK(value <= max, "{}: byte {}: expected a {} from 1 to {}, got a larger number", name_, at_, what,
                       max);
    }
    LATHE_USER_CHECK(at_ < text_.size(), "{}: the header ends at byte {}, within the {}", name_, at_, what);
    LATHE_USER_CHECK(value > 0, "{}: byte {}: expected a {} from 1 to {}, got 0", name_, at_, what, max);
    return value;
  }

  // Exactly one white space stands between the header and the pixels.
  int64_t end() {
    LATHE_USER_CHECK(is_space(text_[at_]), "{}: byte {}: expected white space after the header", name_, at_);
    return static_cast<int64_t>(++at_);
  }

 private:
  std::string_view text_;
  const std::string& name_;
  size_t at_ = 2;
};

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

bool is_pnm(std::span<const std::byte> start) {
  const std::string_view text = as_text(start);
  return text.starts_with("P5") || text.starts_with("P6");
}

PnmHeader parse_pnm_header(std::span<const std::byte> start, int64_t file_bytes, const std::string& name) {
  const std::string_view text = as_text(start.first(std::min<size_t>(start.size(), kMaxHeaderBytes)));
  LATHE_USER_CHECK(is_pnm(start), "{}: expected a binary PGM or PPM image (P5 or P6)", name);
  HeaderReader reader(text, name);
  const int64_t width = reader.number("width", kMaxPnmSide), height = reader.number("height", kMaxPnmSide);
  const int64_t top = reader.number("largest value", 65535);
  LATHE_USER_CHECK(top == 255, "{}: expected 8 bits per channel (a largest value of 255), got {}", name, top);
  PnmHeader header{Shape{height, width, text[1] == '5' ? 1 : 3}, reader.end()};
  const int64_t wanted = header.bytes + header.shape.numel();
  LATHE_USER_CHECK(file_bytes == wanted, "{}: {}: expected {} bytes for an image of {}, got {}", name,
                   file_bytes < wanted ? "truncated" : "too long", wanted, to_string(header.shape), file_bytes);
  return header;
}

std::vector<std::byte> read_pnm(const std::string& path, const Shape& shape) {
  const FileStart start = read_start(path, kMaxHeaderBytes);
  const PnmHeader header = parse_pnm_header(start.bytes, start.file_bytes, path);
  LATHE_USER_CHECK(header.shape == shape, "{}: expected an image of {} (height, width, channels), got {}", path,
                   to_string(shape), to_string(header.shape));
  std::vector<std::byte> content = read_file(path, kMaxPnmBytes);
  LATHE_USER_CHECK(static_cast<int64_t>(content.size()) == start.file_bytes, "{}: changed while it was read", path);
  content.erase(content.begin(), content.begin() + header.bytes);
  return content;
}

}  // namespace lathe::data
