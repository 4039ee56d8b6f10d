#include "data/formats/npy.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/error.h"

namespace lathe::data {
namespace {

constexpr int kMaxNpyDims = 8;

// The header: a Python dictionary of three entries, in any order.
class NpyHeader {
 public:
  NpyHeader(std::string_view text, const std::string& name) : text_(text), name_(name) {
    expect('{');
    while (!accept('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr") {
        descr = quoted();
      } else if (key == "fortran_order") {
        fortran = word();
        if (fortran != "True" && fortran != "False") fail("expected True or False");
      } else if (key == "shape") {
        read_shape();
      } else {
        fail("expected descr, fortran_order or shape");
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    if (descr.empty() || fortran.empty() || !dims) fail("expected descr, fortran_order and shape");
  }

  std::string_view descr, fortran;
  std::optional<Ints> dims;

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw UserError(fmt::format("{}: header, byte {}: {}", name_, at_, what));
  }
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool accept(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("expected '{}'", c));
  }
  std::string_view quoted() {
    skip();
    if (at_ < text_.size() && text_[at_] == '[') fail("expected an array of numbers, got records");
    expect('\'');
    const size_t end = text_.find('\'', at_);
    if (end == text_.npos) fail("a quote is not closed");
    const std::string_view out = text_.substr(at_, end - at_);
    at_ = end + 1;
    return out;
  }
  std::string_view word() {
    skip();
    const size_t begin = at_;
    while (at_ < text_.size() && std::isalpha(static_cast<unsigned char>(text_[at_]))) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  void read_shape() {
    expect('(');
    Ints out;
    while (!accept(')')) {
      skip();
      int64_t v = 0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), v);
      if (error != std::errc() || v < 0) fail("expected a length");
      at_ = static_cast<size_t>(end - text_.data());
      out.push_back(v);
      if (out.size() > kMaxNpyDims) fail(fmt::format("expected at most {} dimensions", kMaxNpyDims));
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    dims = std::move(out);
  }

  std::string_view text_;
  const std::string& name_;
  size_t at_ = 0;
};

template <class T>
double element(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return static_cast<double>(v);
}

struct NpyType {
  char kind = 0;
  int item = 0;
  bool big_endian = false;
};

std::optional<NpyType> npy_type(std::string_view descr) {
  if (descr.size() != 3) return {};
  const NpyType t{descr[1], descr[2] - '0', descr[0] == '>'};
  const std::string_view order = t.item == 1 ? "|<>" : "<>", kinds = t.item == 1 ? "iub" : "fiu";
  const bool sized = t.item == 1 || t.item == 2 || t.item == 4 || t.item == 8;
  if (!sized || order.find(descr[0]) == order.npos || kinds.find(t.kind) == kinds.npos) return {};
  return t;
}

void swap_bytes(std::span<std::byte> elements, int item) {
  for (size_t i = 0; i < elements.size(); i += static_cast<size_t>(item))
    std::reverse(elements.data() + i, elements.data() + i + item);
}

// `content` with its elements, the first axis fastest, in C order.
std::vector<std::byte> in_c_order(const std::vector<std::byte>& content, int64_t header, const Shape& shape, int item) {
  std::vector<std::byte> out = content;
  std::byte* to = out.data() + header;
  Ints index(static_cast<size_t>(shape.ndim()), 0), stride(index.size(), item);
  for (size_t d = 1; d < stride.size(); ++d) stride[d] = stride[d - 1] * shape[static_cast<int>(d) - 1];
  int64_t from = header;
  for (int64_t i = shape.numel(); i > 0; --i, to += item) {
    std::memcpy(to, content.data() + from, static_cast<size_t>(item));
    for (size_t d = index.size(); d-- > 0;) {
      from += stride[d];
      if (++index[d] < shape[static_cast<int>(d)]) break;
      from -= stride[d] * index[d];
      index[d] = 0;
    }
  }
  return out;
}

}  // namespace

double NpyArray::at(int64_t i) const {
  const std::byte* p = file.data() + header_bytes + i * item;
  if (kind == 'f') return item == 2 ? element<Half>(p) : item == 4 ? element<float>(p) : element<double>(p);
  if (kind == 'b') return *p != std::byte{0};
  if (kind == 'i') {
    return item == 1   ? element<int8_t>(p)
           : item == 2 ? element<int16_t>(p)
           : item == 4 ? element<int32_t>(p)
                       : element<int64_t>(p);
  }
  return item == 1   ? element<uint8_t>(p)
         : item == 2 ? element<uint16_t>(p)
         : item == 4 ? element<uint32_t>(p)
                     : element<uint64_t>(p);
}

NpyArray parse_npy(std::vector<std::byte> content, const std::string& name) {
  const auto size = static_cast<int64_t>(content.size());
  const auto byte = [&](size_t i) { return std::to_integer<int64_t>(content[i]); };
  LATHE_USER_CHECK(size >= 12 && std::memcmp(content.data(), "\x93NUMPY", 6) == 0, "{}: expected an .npy file", name);
  const bool wide = byte(6) >= 2;
  LATHE_USER_CHECK(byte(6) >= 1 && byte(6) <= 3, "{}: expected version 1 to 3 of the format, got {}", name, byte(6));
  const int64_t length = byte(8) | byte(9) << 8 | (wide ? byte(10) << 16 | byte(11) << 24 : 0);
  const int64_t begin = wide ? 12 : 10;
  LATHE_USER_CHECK(length <= size - begin, "{}: truncated: expected a header of {} bytes, got {}", name, length,
                   size - begin);
  const NpyHeader header({reinterpret_cast<const char*>(content.data()) + begin, static_cast<size_t>(length)}, name);
  NpyArray out;
  const std::string_view d = header.descr;
  LATHE_USER_CHECK(d.find('O') == d.npos, "{}: expected numbers, got Python objects, which are never unpickled", name);
  const std::optional<NpyType> type = npy_type(d);
  LATHE_USER_CHECK(type, "{}: expected numbers (f2, f4, f8, i1 to i8, u1 to u8, b1), got another type", name);
  out.kind = type->kind;
  out.item = type->item;
  int64_t bytes = out.item;
  for (const int64_t n : *header.dims) bytes = checked_mul(bytes, n, name + ": shape");
  out.shape = Shape(*header.dims);
  out.header_bytes = begin + length;
  LATHE_USER_CHECK(size - out.header_bytes == bytes, "{}: {}: expected {} bytes for shape {}, got {}", name,
                   size - out.header_bytes < bytes ? "truncated" : "too long", bytes, to_string(out.shape),
                   size - out.header_bytes);
  if (type->big_endian) swap_bytes(std::span(content).subspan(static_cast<size_t>(out.header_bytes)), out.item);
  const bool turned = header.fortran == "True" && out.shape.ndim() > 1 && bytes > 0;
  out.file = turned ? in_c_order(content, out.header_bytes, out.shape, out.item) : std::move(content);
  return out;
}

}  // namespace lathe::data
