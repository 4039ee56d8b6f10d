// The reader: a guarded byte feed, a SAX handler that accepts exactly the header's grammar, then the layout checks.
#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/checked.h"

namespace lathe::io {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

namespace {

struct FileDType {
  std::string_view name;
  int bits;
  std::optional<DType> dtype;
};

constexpr FileDType kFileDTypes[] = {
    {"F32", 32, DType::f32}, {"F64", 64, DType::f64}, {"I32", 32, DType::i32}, {"I64", 64, DType::i64},
    {"U8", 8, DType::u8},    {"BOOL", 8, DType::b8},  {"F16", 16, DType::f16}, {"BF16", 16, DType::bf16},
    {"I8", 8, {}},           {"I16", 16, {}},         {"U16", 16, {}},         {"U32", 32, {}},
    {"U64", 64, {}},         {"C64", 64, {}},         {"F8_E4M3", 8, {}},      {"F8_E5M2", 8, {}},
    {"F8_E8M0", 8, {}},      {"F8_E4M3FNUZ", 8, {}},  {"F8_E5M2FNUZ", 8, {}},  {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},      {"F4", 4, {}},
};

// For messages: printable, and short whatever the file says.
std::string shown(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, 80)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f || c == '"' || c == '\\')
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  return out + (text.size() > 80 ? "...\"" : "\"");
}

// Hands the header to the JSON lexer byte by byte from a small buffer. The lexer keeps a whole token, and all blanks
// before it, in memory; so blanks are collapsed and over-long tokens refused here, and the header itself is never held.
class HeaderFeed {
 public:
  HeaderFeed(const File& file, int64_t begin, int64_t end) : file_(file), next_(begin), end_(end) { fetch(); }

  bool done() const { return at_ == size_; }
  char peek() const { return buffer_[at_]; }
  int64_t offset() const { return next_ - static_cast<int64_t>(size_ - at_); }  // of peek() in the file

  void advance() {
    const char c = step();
    if (in_string_) {
      if (escaped_)
        escaped_ = false;
      else if (c == '\\')
        escaped_ = true;
      else if (c == '"')
        in_string_ = false;
      grow(SafetensorsFile::kMaxStringBytes);
    } else if (c == '"') {
      in_string_ = true;
      token_ = 0;
    } else if (blank(c)) {
      while (!done() && blank(peek())) step();
      token_ = 0;
    } else if (c == ',' || c == ':' || c == '[' || c == ']' || c == '{' || c == '}') {
      token_ = 0;
    } else {
      grow(64);
    }
  }

 private:
  static bool blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

  void grow(int64_t limit) {
    LATHE_USER_CHECK(++token_ <= limit, "{}: byte {}: header token is longer than {} bytes", file_.path(), offset(),
                     limit);
  }

  char step() {
    const char c = buffer_[at_++];
    if (at_ == size_) fetch();
    return c;
  }

  void fetch() {
    size_ = static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(buffer_.size()), end_ - next_));
    at_ = 0;
    file_.read_at(next_, std::as_writable_bytes(std::span(buffer_.data(), size_)));
    next_ += static_cast<int64_t>(size_);
  }

  const File& file_;
  int64_t next_, end_;
  size_t at_ = 0, size_ = 0;
  int64_t token_ = 0;
  bool in_string_ = false, escaped_ = false;
  std::array<char, 1 << 16> buffer_;
};

struct FeedIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  HeaderFeed* feed = nullptr;  // null: the end

  char operator*() const { return feed->peek(); }
  FeedIterator& operator++() {
    feed->advance();
    return *this;
  }
  friend bool operator!=(const FeedIterator& a, const FeedIterator&) { return !a.feed->done(); }
};

// Accepts {"name": {"dtype": string, "shape": [ints], "data_offsets": [int, int]}, "__metadata__": {string: string}}.
// Anything else, at any depth, ends the parse: so nesting is bounded by the grammar.
class HeaderHandler {
 public:
  HeaderHandler(const File& file, const HeaderFeed& feed, std::vector<TensorEntry>& tensors, Metadata& metadata)
      : file_(file), feed_(feed), tensors_(tensors), metadata_(metadata) {}

  bool start_object(size_t) {
    if (place_ == Place::top && !seen_root_) {
      seen_root_ = true;
      place_ = Place::entries;
    } else if (place_ == Place::entries) {
      place_ = in_metadata_ ? Place::metadata : Place::tensor;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool end_object() {
    if (place_ == Place::tensor) {
      finish_tensor();
      place_ = Place::entries;
    } else {
      place_ = place_ == Place::metadata ? Place::entries : Place::top;
    }
    return true;
  }

  bool key(std::string& text) {
    if (place_ == Place::entries)
      start_entry(text);
    else if (place_ == Place::metadata)
      start_metadata(text);
    else
      start_field(text);
    return true;
  }

  bool string(std::string& text) {
    if (place_ == Place::metadata) {
      if (!metadata_.emplace(metadata_key_, text).second)
        fail("duplicate key {} in __metadata__", shown(metadata_key_));
    } else if (place_ == Place::tensor && field_ == kDType) {
      set_dtype(text);
    } else {
      unexpected("a string");
    }
    return true;
  }

  bool start_array(size_t) {
    if (place_ != Place::tensor || field_ == kDType) unexpected("an array");
    place_ = Place::numbers;
    return true;
  }

  bool end_array() {
    place_ = Place::tensor;
    return true;
  }

  bool number_unsigned(uint64_t value) {
    if (place_ != Place::numbers) unexpected("a number");
    if (value > static_cast<uint64_t>(INT64_MAX))
      fail("tensor {}: {} overflows 63 bits (shape overflow)", name(), value);
    add_number(static_cast<int64_t>(value));
    return true;
  }
  bool number_integer(int64_t value) {
    if (place_ != Place::numbers) unexpected("a number");
    fail("tensor {}: expected a non-negative integer, got {}", name(), value);
  }
  bool number_float(double, const std::string& text) {
    if (place_ != Place::numbers) unexpected("a number");
    fail("tensor {}: expected an integer below 2^63, got {} (shape overflow)", name(), shown(text));
  }
  bool null() { unexpected("null"); }
  bool boolean(bool) { unexpected("a boolean"); }
  bool binary(nlohmann::json::binary_t&) { unexpected("binary"); }

  template <class Exception>
  bool parse_error(size_t, const std::string& token, const Exception&) {
    fail("the header is not valid JSON near {}", shown(token));
  }

 private:
  enum class Place { top, entries, tensor, numbers, metadata };
  enum Field { kDType = 1, kShape = 2, kOffsets = 4, kAllFields = 7 };

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) const {
    throw UserError(
        fmt::format("{}: byte {}: {}", file_.path(), feed_.offset(), fmt::format(text, std::forward<Args>(args)...)));
  }

  [[noreturn]] void unexpected(std::string_view what) const {
    switch (place_) {
      case Place::metadata: fail("__metadata__ {}: expected a string, got {}", shown(metadata_key_), what);
      case Place::entries:
        fail("{}: expected an object, got {}", in_metadata_ ? std::string("__metadata__") : name(), what);
      case Place::tensor:
        fail("tensor {}: expected {}, got {}", name(), field_ == kDType ? "a string as dtype" : "an array", what);
      case Place::numbers: fail("tensor {}: expected an integer, got {}", name(), what);
      case Place::top: break;
    }
    fail("expected one object, got {}", what);
  }

  std::string name() const { return shown(entry_.name); }

  void start_entry(const std::string& text) {
    in_metadata_ = text == "__metadata__";
    if (in_metadata_) {
      if (seen_metadata_) fail("duplicate key \"__metadata__\"");
      seen_metadata_ = true;
      return;
    }
    if (text.find('\0') != std::string::npos) fail("tensor name {} contains a NUL byte", shown(text));
    if (static_cast<int64_t>(tensors_.size()) >= SafetensorsFile::kMaxTensors)
      fail("more than {} tensors", SafetensorsFile::kMaxTensors);
    entry_ = {};
    entry_.name = text;
    fields_ = 0;
    ndim_ = 0;
    offset_count_ = 0;
  }

  void start_metadata(const std::string& text) {
    if (static_cast<int64_t>(metadata_.size()) >= SafetensorsFile::kMaxMetadata)
      fail("more than {} strings in __metadata__", SafetensorsFile::kMaxMetadata);
    metadata_key_ = text;
  }

  void start_field(const std::string& text) {
    if (text == "dtype")
      field_ = kDType;
    else if (text == "shape")
      field_ = kShape;
    else if (text == "data_offsets")
      field_ = kOffsets;
    else
      fail("tensor {}: unknown key {}", name(), shown(text));
    if (fields_ & field_) fail("tensor {}: duplicate key {}", name(), shown(text));
    fields_ |= field_;
  }

  void set_dtype(const std::string& text) {
    for (const FileDType& d : kFileDTypes) {
      if (d.name != text) continue;
      entry_.dtype_name = d.name;
      entry_.dtype = d.dtype;
      bits_ = d.bits;
      return;
    }
    fail("tensor {}: unknown dtype {}", name(), shown(text));
  }

  void add_number(int64_t value) {
    if (field_ == kShape) {
      if (ndim_ == Shape::kMaxDims)
        fail("tensor {}: expected at most {} dimensions, got more (shape overflow)", name(), Shape::kMaxDims);
      dims_[ndim_++] = value;
    } else {
      if (offset_count_ == 2) fail("tensor {}: expected 2 data_offsets, got more", name());
      offsets_[offset_count_++] = value;
    }
  }

  void finish_tensor() {
    if (fields_ != kAllFields) {
      const char* missing = !(fields_ & kDType) ? "dtype" : !(fields_ & kShape) ? "shape" : "data_offsets";
      fail("tensor {}: missing key \"{}\"", name(), missing);
    }
    if (offset_count_ != 2) fail("tensor {}: expected 2 data_offsets, got {}", name(), offset_count_);
    if (offsets_[0] > offsets_[1]) fail("tensor {}: reversed data_offsets [{}, {}]", name(), offsets_[0], offsets_[1]);
    try {
      entry_.shape = Shape(std::span<const int64_t>(dims_.data(), ndim_));
    } catch (const UserError&) {
      fail("tensor {}: shape overflow in [{}]", name(), fmt::join(dims_.begin(), dims_.begin() + ndim_, ", "));
    }
    const auto bits = try_mul(entry_.shape.numel(), bits_);
    if (!bits) fail("tensor {}: shape overflow in {} {}", name(), entry_.dtype_name, to_string(entry_.shape));
    const int64_t got = offsets_[1] - offsets_[0];
    if (*bits % 8 != 0 || *bits / 8 != got)
      fail("tensor {}: {} {} needs {} bits, data_offsets [{}, {}] hold {} bytes", name(), entry_.dtype_name,
           to_string(entry_.shape), *bits, offsets_[0], offsets_[1], got);
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    tensors_.push_back(std::move(entry_));
  }

  const File& file_;
  const HeaderFeed& feed_;
  std::vector<TensorEntry>& tensors_;
  Metadata& metadata_;

  Place place_ = Place::top;
  bool seen_root_ = false, seen_metadata_ = false, in_metadata_ = false;
  std::string metadata_key_;

  TensorEntry entry_;
  Field field_ = kDType;
  int fields_ = 0, bits_ = 0;
  std::array<int64_t, Shape::kMaxDims> dims_{};
  std::array<int64_t, 2> offsets_{};
  size_t ndim_ = 0, offset_count_ = 0;
};

}  // namespace

SafetensorsFile SafetensorsFile::open(Fs& fs, const std::string& path) {
  SafetensorsFile result(File::open_read(fs, path));
  result.parse_header();
  return result;
}

void SafetensorsFile::parse_header() {
  const int64_t file_size = file_.size();
  LATHE_USER_CHECK(file_size >= 8, "{}: expected at least 8 bytes (the header length), got a file of {} bytes", path(),
                   file_size);
  uint64_t length = 0;
  file_.read_at(0, std::as_writable_bytes(std::span(&length, 1)));
  LATHE_USER_CHECK(length <= kMaxHeaderBytes, "{}: byte 0: header length {} exceeds the format's limit of {}", path(),
                   length, kMaxHeaderBytes);
  const auto header_bytes = static_cast<int64_t>(length);
  LATHE_USER_CHECK(header_bytes <= file_size - 8,
                   "{}: byte 0: header length {} needs a file of at least {} bytes, got {} (truncated?)", path(),
                   length, header_bytes + 8, file_size);
  LATHE_USER_CHECK(header_bytes >= 2, "{}: byte 0: header length {} is too small for a JSON object", path(), length);

  const int64_t data_begin = 8 + header_bytes;
  // On the heap: it is 64 KB, and callers may run on small thread stacks.
  const auto feed = std::make_unique<HeaderFeed>(file_, 8, data_begin);
  LATHE_USER_CHECK(feed->peek() == '{', "{}: byte 8: the header must start with '{{', got byte {}", path(),
                   static_cast<int>(static_cast<unsigned char>(feed->peek())));
  HeaderHandler handler(file_, *feed, tensors_, metadata_);
  const bool ok = nlohmann::json::sax_parse(FeedIterator{feed.get()}, FeedIterator{}, &handler);
  LATHE_CHECK(ok, "the handler throws rather than return false");
  check_layout(data_begin, file_size);
  index_names();
}

// Sorted by offset the tensors must tile the data exactly. An empty tensor may sit at any boundary, not inside another
// one.
void SafetensorsFile::check_layout(int64_t data_begin, int64_t file_size) {
  std::sort(tensors_.begin(), tensors_.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  const int64_t data_bytes = file_size - data_begin;
  int64_t at = 0;
  for (TensorEntry& t : tensors_) {
    LATHE_USER_CHECK(t.begin <= at, "{}: byte {}: hole of {} bytes before tensor {}", path(), data_begin + at,
                     t.begin - at, shown(t.name));
    LATHE_USER_CHECK(t.begin == at, "{}: byte {}: tensor {} overlaps the one before it by {} bytes", path(),
                     data_begin + t.begin, shown(t.name), at - t.begin);
    LATHE_USER_CHECK(t.end <= data_bytes, "{}: byte {}: tensor {} is cut off: expected a file of {} + {} bytes, got {}",
                     path(), file_size, shown(t.name), data_begin, tensors_.back().end, file_size);
    at = t.end;
    t.begin += data_begin;
    t.end += data_begin;
  }
  LATHE_USER_CHECK(at == data_bytes, "{}: byte {}: {} trailing bytes after the last tensor (expected size {}, got {})",
                   path(), data_begin + at, data_bytes - at, data_begin + at, file_size);
}

void SafetensorsFile::index_names() {
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  std::sort(by_name_.begin(), by_name_.end(),
            [&](uint32_t a, uint32_t b) { return tensors_[a].name < tensors_[b].name; });
  const auto twin = std::adjacent_find(by_name_.begin(), by_name_.end(),
                                       [&](uint32_t a, uint32_t b) { return tensors_[a].name == tensors_[b].name; });
  LATHE_USER_CHECK(twin == by_name_.end(), "{}: byte {}: duplicate tensor name {} in the header", path(), 8,
                   shown(tensors_[*twin].name));
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto it = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [&](uint32_t index, std::string_view n) { return tensors_[index].name < n; });
  return it != by_name_.end() && tensors_[*it].name == name ? &tensors_[*it] : nullptr;
}

std::vector<const TensorEntry*> SafetensorsFile::unsupported() const {
  std::vector<const TensorEntry*> result;
  for (const TensorEntry& t : tensors_)
    if (!t.dtype) result.push_back(&t);
  return result;
}

void SafetensorsFile::read(const TensorEntry& entry, std::span<std::byte> dst) const {
  LATHE_CHECK(static_cast<int64_t>(dst.size()) == entry.bytes(), "tensor {}: {} bytes for {}", shown(entry.name),
              dst.size(), entry.bytes());
  file_.read_at(entry.begin, dst);
  if (entry.dtype != DType::b8) return;
  const auto bad = std::find_if(dst.begin(), dst.end(), [](std::byte b) { return b > std::byte{1}; });
  LATHE_USER_CHECK(bad == dst.end(), "{}: byte {}: tensor {}: expected 0 or 1 for BOOL, got {}", path(),
                   entry.begin + (bad - dst.begin()), shown(entry.name), static_cast<int>(*bad));
}

}  // namespace lathe::io
