#include "data/formats/idx.h"

#include <libdeflate.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "data/file.h"

namespace lathe::data {
namespace {

constexpr int64_t kMaxIdxBytes = int64_t{64} << 30;
constexpr uint8_t kElementU8 = 0x08;

// Deflate cannot expand by more than this (258 bytes from 2 bits), so a small file cannot make a large allocation.
constexpr int64_t kMaxDeflateRatio = 1032;

// A stored block is written whole or not at all and has at most 65535 bytes: a probe of twice that always shows the
// header.
constexpr size_t kProbeBytes = 1 << 17;

struct Header {
  Shape shape;
  int64_t bytes = 0;       // of the header
  int64_t file_bytes = 0;  // header and elements
};

uint32_t big_endian(const std::byte* p) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | std::to_integer<uint32_t>(p[i]);
  return value;
}

Header parse_header(std::span<const std::byte> content, const std::string& name) {
  LATHE_USER_CHECK(content.size() >= 4, "{}: expected an IDX header of at least 4 bytes, got {} bytes", name,
                   content.size());
  const uint32_t magic = big_endian(content.data());
  const int ndim = static_cast<int>(magic & 0xff);
  LATHE_USER_CHECK(magic >> 16 == 0, "{}: expected an IDX file (magic 00 00 08 nn), got magic {:08x}", name, magic);
  LATHE_USER_CHECK((magic >> 8 & 0xff) == kElementU8, "{}: expected IDX element type 08 (unsigned byte), got {:02x}",
                   name, magic >> 8 & 0xff);
  LATHE_USER_CHECK(ndim >= 1 && ndim <= 4, "{}: expected 1 to 4 IDX dimensions, got {}", name, ndim);
  Header header;
  header.bytes = 4 + 4 * int64_t{ndim};
  LATHE_USER_CHECK(static_cast<int64_t>(content.size()) >= header.bytes,
                   "{}: truncated: expected an IDX header of {} bytes, got {} bytes", name, header.bytes,
                   content.size());
  Ints dims;
  int64_t numel = 1;
  for (int i = 0; i < ndim; ++i) {
    dims.push_back(big_endian(content.data() + 4 + 4 * i));
    numel = checked_mul(numel, dims.back(), name + ": IDX dimensions");
  }
  header.shape = Shape(dims);
  header.file_bytes = checked_add(header.bytes, numel, name + ": IDX dimensions");
  return header;
}

void check_size(const Header& header, int64_t actual, const std::string& name) {
  LATHE_USER_CHECK(actual == header.file_bytes, "{}: {}: expected {} bytes for dimensions {}, got {} bytes", name,
                   actual < header.file_bytes ? "truncated" : "too long", header.file_bytes, to_string(header.shape),
                   actual);
}

bool is_gzip(std::span<const std::byte> content) {
  return content.size() >= 2 && content[0] == std::byte{0x1f} && content[1] == std::byte{0x8b};
}

struct Inflated {
  libdeflate_result result;
  size_t read, written;
};

Inflated inflate(std::span<const std::byte> content, std::span<std::byte> out) {
  struct Free {
    void operator()(libdeflate_decompressor* d) const { libdeflate_free_decompressor(d); }
  };
  const std::unique_ptr<libdeflate_decompressor, Free> decompressor(libdeflate_alloc_decompressor());
  if (!decompressor) throw UserError("gzip: out of memory", Exit::os_error);
  Inflated inflated{};
  inflated.result = libdeflate_gzip_decompress_ex(decompressor.get(), content.data(), content.size(), out.data(),
                                                  out.size(), &inflated.read, &inflated.written);
  return inflated;
}

void check_compressed(const Header& header, int64_t compressed, const std::string& name) {
  LATHE_USER_CHECK(header.file_bytes / kMaxDeflateRatio <= compressed,
                   "{}: truncated: expected {} bytes for dimensions {}, more than {} compressed bytes can hold", name,
                   header.file_bytes, to_string(header.shape), compressed);
}

// A small first buffer shows the IDX header; its dimensions then fix the size of the real buffer, so a stream that
// expands to more than it declares is an error and not memory.
std::vector<std::byte> unpack_gzip(std::span<const std::byte> content, const std::string& name) {
  const auto compressed = static_cast<int64_t>(content.size());
  std::vector<std::byte> probe(kProbeBytes);
  Inflated inflated = inflate(content, probe);
  const bool whole = inflated.result == LIBDEFLATE_SUCCESS;
  LATHE_USER_CHECK(whole || inflated.result == LIBDEFLATE_INSUFFICIENT_SPACE,
                   "{}: the gzip data ({} bytes) is damaged or truncated", name, compressed);
  const Header header = parse_header(std::span(probe).first(whole ? inflated.written : probe.size()), name);
  if (whole) {
    check_size(header, static_cast<int64_t>(inflated.written), name);
    probe.resize(inflated.written);
  } else {
    check_compressed(header, compressed, name);
    // The probe already has more bytes than the dimensions allow when they are that small.
    LATHE_USER_CHECK(header.file_bytes > static_cast<int64_t>(kProbeBytes),
                     "{}: too long: expected {} bytes for dimensions {}, got more than {} after decompression", name,
                     header.file_bytes, to_string(header.shape), kProbeBytes);
    probe = std::vector<std::byte>(static_cast<size_t>(header.file_bytes));
    inflated = inflate(content, probe);
    LATHE_USER_CHECK(inflated.result != LIBDEFLATE_INSUFFICIENT_SPACE,
                     "{}: too long: expected {} bytes for dimensions {}, got more after decompression", name,
                     header.file_bytes, to_string(header.shape));
    LATHE_USER_CHECK(inflated.result == LIBDEFLATE_SUCCESS,
                     "{}: truncated or damaged gzip data: expected {} bytes for dimensions {}, got {} compressed bytes "
                     "that do not unpack",
                     name, header.file_bytes, to_string(header.shape), compressed);
    check_size(header, static_cast<int64_t>(inflated.written), name);
  }
  LATHE_USER_CHECK(inflated.read == content.size(),
                   "{}: expected the gzip stream to end with the file, got {} more bytes", name,
                   content.size() - inflated.read);
  return probe;
}

Shape sample_shape(const Shape& images) { return Shape{images[1], images[2], images.ndim() == 4 ? images[3] : 1}; }

class IdxSource final : public Source {
 public:
  IdxSource(IdxArray images, IdxArray labels, int64_t classes, std::string name)
      : images_(std::move(images)), labels_(std::move(labels)), classes_(classes), name_(std::move(name)) {
    sample_ = sample_shape(images_.shape);
    fields_[0] = {"image", {DType::u8, sample_}};
    fields_[1] = {"label", {DType::i32, {}}};
  }

  int64_t size() const override { return images_.shape[0]; }
  std::span<const Field> fields() const override { return fields_; }
  void read(int64_t index, SampleSpans fields) const override {
    LATHE_CHECK(index >= 0 && index < size(), "sample {} of {}", index, size());
    std::memcpy(fields[0].data(), images_.elements() + index * sample_.numel(), static_cast<size_t>(sample_.numel()));
    const int32_t label = labels_.elements()[index];
    std::memcpy(fields[1].data(), &label, sizeof label);
  }
  int64_t classes() const override { return classes_; }
  std::string description() const override {
    return fmt::format("{} images {} in {} classes from {}", size(), to_string(sample_), classes_, name_);
  }
  int64_t resident_bytes() const override { return static_cast<int64_t>(images_.file.size() + labels_.file.size()); }
  std::optional<int32_t> label(int64_t index) const override { return labels_.elements()[index]; }

 private:
  IdxArray images_, labels_;
  int64_t classes_;
  std::string name_;
  Shape sample_;
  Field fields_[2];
};

// Where the two files of a data set agree; `images` and `labels` are their headers' dimensions.
void check_pair(const Shape& images, const Shape& labels, const std::string& images_path,
                const std::string& labels_path) {
  LATHE_USER_CHECK(images.ndim() >= 3, "{}: expected images of 3 or 4 dimensions, got {}", images_path,
                   to_string(images));
  LATHE_USER_CHECK(labels.ndim() == 1, "{}: expected labels of 1 dimension, got {}", labels_path, to_string(labels));
  LATHE_USER_CHECK(images.numel() > 0, "{}: no samples: dimensions are {}", images_path, to_string(images));
  LATHE_USER_CHECK(labels[0] == images[0], "{}: expected {} labels, one per image of {}, got {}", labels_path,
                   images[0], images_path, labels[0]);
}

std::unique_ptr<Source> load_pair(const std::string& images_path, const std::string& labels_path, int64_t classes,
                                  const std::string& hint) {
  IdxArray images = parse_idx(read_file(images_path, kMaxIdxBytes, hint), images_path);
  IdxArray labels = parse_idx(read_file(labels_path, kMaxIdxBytes, hint), labels_path);
  check_pair(images.shape, labels.shape, images_path, labels_path);
  const uint8_t* begin = labels.elements();
  const uint8_t* largest = std::max_element(begin, begin + labels.shape[0]);
  if (classes == 0) classes = *largest + 1;
  if (*largest >= classes)
    throw Misfit({"data.classes"}, fmt::format("expected more than {}, the label of sample {} in {}, got {}", *largest,
                                               largest - begin, labels_path, classes));
  return std::make_unique<IdxSource>(std::move(images), std::move(labels), classes, images_path);
}

// The header of a file, from its first bytes where they show it. Of a compressed file the length is not verified.
Header read_header(const std::string& path, const std::string& hint) {
  const FileStart start = read_start(path, 2 * kProbeBytes, hint);
  if (!is_gzip(start.bytes)) {
    const Header header = parse_header(start.bytes, path);
    check_size(header, start.file_bytes, path);
    return header;
  }
  std::vector<std::byte> probe(kProbeBytes);
  // The probe is full before the start of the file is used up; where it is not, the whole file decides.
  if (inflate(start.bytes, probe).result == LIBDEFLATE_INSUFFICIENT_SPACE) {
    const Header header = parse_header(probe, path);
    check_compressed(header, start.file_bytes, path);
    return header;
  }
  const IdxArray whole = parse_idx(read_file(path, kMaxIdxBytes, hint), path);
  return {whole.shape, whole.header_bytes, static_cast<int64_t>(whole.file.size())};
}

SourceInfo describe_pair(const std::string& images_path, const std::string& labels_path, int64_t classes,
                         const std::string& hint) {
  const Header images = read_header(images_path, hint), labels = read_header(labels_path, hint);
  check_pair(images.shape, labels.shape, images_path, labels_path);
  return {{DType::u8, sample_shape(images.shape)}, classes, images.shape[0], images.file_bytes + labels.file_bytes};
}

// The first spelling that exists; the plain .gz one, for the error, when none does.
std::string find_part(const std::string& folder, const char* split, const char* kind, int ndim) {
  const std::string base = fmt::format("{}/{}-{}", folder, split, kind);
  const std::string wanted = fmt::format("{}-idx{}-ubyte", base, ndim);
  for (const std::string& path : {wanted + ".gz", wanted, fmt::format("{}.idx{}-ubyte.gz", base, ndim),
                                  fmt::format("{}.idx{}-ubyte", base, ndim)}) {
    if (is_regular_file(path)) return path;
  }
  return wanted + ".gz";
}

const char* prefix_of(Split split) { return split == Split::train ? "train" : "t10k"; }

// f(images, labels) with the paths of a folder's two files.
template <class F>
auto in_folder(const std::string& folder, Split split, F&& f) {
  return f(find_part(folder, prefix_of(split), "images", 3), find_part(folder, prefix_of(split), "labels", 1));
}

constexpr const char* kFolderHint = "set data.path to the folder with the IDX files";
constexpr const char* kFashionHint = "install the Debian package dataset-fashion-mnist or set data.path";

}  // namespace

IdxArray parse_idx(std::vector<std::byte> content, const std::string& name) {
  if (is_gzip(content)) content = unpack_gzip(content, name);
  const Header header = parse_header(content, name);
  check_size(header, static_cast<int64_t>(content.size()), name);
  return {header.shape, std::move(content), header.bytes};
}

std::unique_ptr<Source> load_idx(const std::string& images_path, const std::string& labels_path, int64_t classes) {
  return load_pair(images_path, labels_path, classes, "set data.path");
}

std::unique_ptr<Source> load_idx_folder(const std::string& folder, Split split, int64_t classes) {
  return in_folder(folder, split, [&](const std::string& images, const std::string& labels) {
    return load_pair(images, labels, classes, kFolderHint);
  });
}

SourceInfo describe_idx_folder(const std::string& folder, Split split, int64_t classes) {
  return in_folder(folder, split, [&](const std::string& images, const std::string& labels) {
    return describe_pair(images, labels, classes, kFolderHint);
  });
}

bool has_idx_test(const std::string& folder) {
  return is_regular_file(find_part(folder, prefix_of(Split::test), "images", 3));
}

std::unique_ptr<Source> load_fashion_mnist(const std::string& folder, Split split) {
  const std::string in = folder.empty() ? kFashionMnistFolder : folder;
  return in_folder(in, split, [&](const std::string& images, const std::string& labels) {
    try {
      return load_pair(images, labels, 10, kFashionHint);
    } catch (const Misfit& e) {
      throw UserError(fmt::format("{}: expected Fashion-MNIST, whose classes are 10: {}", in, e.what()));
    }
  });
}

SourceInfo describe_fashion_mnist(const std::string& folder, Split split) {
  if (folder.empty()) {
    const int64_t n = split == Split::train ? 60000 : 10000;
    return {{DType::u8, {28, 28, 1}}, 10, n, (16 + n * 28 * 28) + (8 + n)};
  }
  return in_folder(folder, split, [&](const std::string& images, const std::string& labels) {
    return describe_pair(images, labels, 10, kFashionHint);
  });
}

std::vector<std::string> fashion_mnist_class_names() {
  return {"T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"};
}

}  // namespace lathe::data
