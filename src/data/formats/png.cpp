#include "data/formats/png.h"

#include <png.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csetjmp>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

#include "base/checked.h"
#include "base/error.h"
#include "base/philox.h"
#include "data/fetch.h"
#include "data/file.h"

namespace lathe::data {
namespace {

namespace stdfs = std::filesystem;

constexpr uint32_t kFileStream = 0x66696c65;    // "file"
constexpr uint32_t kGroundStream = 0x67726e64;  // "grnd"
constexpr int64_t kMaxPngBytes = int64_t{1} << 30;
constexpr int64_t kMaxPngSide = 1 << 20;
constexpr int64_t kTestImageEvery = 5;
constexpr int kMaxDepth = 8;  // of folders in a class
constexpr size_t kMaxFiles = 50'000'000;
constexpr int64_t kHeaderBytes = 33;
constexpr unsigned char kPngMagic[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

struct PngSize {
  int64_t width, height;
};

uint32_t big_endian_at(std::span<const std::byte> bytes, size_t at) {
  uint32_t v = 0;
  for (size_t i = 0; i < 4; ++i) v = v << 8 | std::to_integer<uint32_t>(bytes[at + i]);
  return v;
}

PngSize png_size(std::span<const std::byte> start, const std::string& name) {
  LATHE_USER_CHECK(start.size() >= static_cast<size_t>(kHeaderBytes) &&
                       std::memcmp(start.data(), kPngMagic, sizeof kPngMagic) == 0 &&
                       std::memcmp(start.data() + 12, "IHDR", 4) == 0,
                   "{}: expected a PNG image", name);
  const PngSize size{big_endian_at(start, 16), big_endian_at(start, 20)};
  LATHE_USER_CHECK(size.width >= 1 && size.height >= 1 && size.width <= kMaxPngSide && size.height <= kMaxPngSide,
                   "{}: expected sides of 1 to {}, got {} x {}", name, kMaxPngSide, size.width, size.height);
  return size;
}

// libpng allocates what a chunk says it holds before it reads it: lengths must lie within the file.
void check_chunks(std::span<const std::byte> file, const std::string& name) {
  size_t at = 8;
  while (file.size() - at >= 12) {
    const uint32_t length = big_endian_at(file, at);
    LATHE_USER_CHECK(length <= file.size() - at - 12, "{}: truncated: expected {} bytes of a chunk at byte {}, got {}",
                     name, length, at, file.size() - at - 12);
    if (std::memcmp(file.data() + at + 4, "IEND", 4) == 0) return;
    at += 12 + size_t{length};
  }
  throw UserError(fmt::format("{}: truncated: no end of the image at byte {}", name, at));
}

// libpng reports errors by longjmp: between setjmp and the end nothing here owns memory, so that nothing is lost.
struct Decoder {
  std::span<const std::byte> file;
  size_t at = 0;
  uint8_t* out = nullptr;
  size_t row_bytes = 0;
  int64_t height = 0;
  char message[128] = "";
};

extern "C" {
void lathe_png_error(png_structp png, png_const_charp message) {
  auto* d = static_cast<Decoder*>(png_get_error_ptr(png));
  std::strncpy(d->message, message, sizeof d->message - 1);
  longjmp(png_jmpbuf(png), 1);
}
void lathe_png_warning(png_structp, png_const_charp) {}
void lathe_png_read(png_structp png, png_bytep to, png_size_t bytes) {
  auto* d = static_cast<Decoder*>(png_get_io_ptr(png));
  if (bytes > d->file.size() - d->at) png_error(png, "the file ends too early");
  std::memcpy(to, d->file.data() + d->at, bytes);
  d->at += bytes;
}
}

bool run_decoder(Decoder& d, int64_t max_side) {
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &d, lathe_png_error, lathe_png_warning);
  png_infop info = png ? png_create_info_struct(png) : nullptr;
  if (!info) {
    png_destroy_read_struct(&png, nullptr, nullptr);
    std::strcpy(d.message, "out of memory");
    return false;
  }
  if (setjmp(png_jmpbuf(png))) {
    png_destroy_read_struct(&png, &info, nullptr);
    return false;
  }
  png_set_user_limits(png, static_cast<png_uint_32>(max_side), static_cast<png_uint_32>(max_side));
  png_set_chunk_cache_max(png, 256);
  png_set_chunk_malloc_max(png, 8 << 20);
  png_set_read_fn(png, &d, lathe_png_read);
  png_read_info(png, info);
  png_set_expand(png);
  png_set_strip_16(png);
  png_set_gray_to_rgb(png);
  png_set_add_alpha(png, 0xff, PNG_FILLER_AFTER);
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  if (png_get_rowbytes(png, info) != d.row_bytes) png_error(png, "rows of an unexpected length");
  for (int pass = 0; pass < passes; ++pass)
    for (int64_t y = 0; y < d.height; ++y) png_read_row(png, d.out + static_cast<size_t>(y) * d.row_bytes, nullptr);
  png_destroy_read_struct(&png, &info, nullptr);
  return true;
}

// Weights of the input pixels [first, first + n) for each output pixel: a triangle as wide as the scale.
struct Taps {
  int64_t first = 0;
  std::vector<float> weights;
};

std::vector<Taps> taps_of(int64_t in, double begin, double scale, int64_t out) {
  std::vector<Taps> all;
  const double reach = std::max(1.0, scale);
  for (int64_t i = 0; i < out; ++i) {
    const double centre = begin + (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<int64_t>(0, static_cast<int64_t>(std::floor(centre - reach)));
    const auto last = std::min<int64_t>(in - 1, static_cast<int64_t>(std::ceil(centre + reach)));
    Taps t{first, {}};
    double sum = 0;
    for (int64_t p = first; p <= last; ++p) {
      const double w = std::max(0.0, 1 - std::abs((static_cast<double>(p) + 0.5 - centre) / reach));
      t.weights.push_back(static_cast<float>(w));
      sum += w;
    }
    for (float& w : t.weights) w = static_cast<float>(w / sum);
    all.push_back(std::move(t));
  }
  return all;
}

struct PngFile {
  std::string path;
  int32_t label = 0;
};

struct Listing {
  std::vector<PngFile> files;  // of the split, at most `limit`
  int64_t classes = 0;
  int64_t left_out = 0;
};

bool is_png_name(const stdfs::path& p) {
  std::string ext = p.extension().string();
  std::ranges::transform(ext, ext.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return ext == ".png";
}

// Entries of a folder, sorted; links are not followed, so that there are no circles and no doubles.
std::vector<stdfs::directory_entry> entries_of(const std::string& folder) {
  std::vector<stdfs::directory_entry> out;
  std::error_code error;
  stdfs::directory_iterator it(folder, error);
  for (; !error && it != stdfs::directory_iterator(); it.increment(error)) {
    out.push_back(*it);
    LATHE_USER_CHECK(out.size() <= kMaxFiles, "{}: expected at most {} files", folder, kMaxFiles);
  }
  if (error)
    throw UserError(fmt::format("{}: {}; {}", folder, error.message(), fetch_hint(folder)),
                    error == std::errc::no_such_file_or_directory ? Exit::missing_input : Exit::io_error);
  std::ranges::sort(out, {}, [](const auto& e) { return e.path().native(); });
  return out;
}

bool is_folder(const stdfs::directory_entry& e) {
  std::error_code error;
  return e.symlink_status(error).type() == stdfs::file_type::directory;
}

void collect(const std::string& folder, int32_t label, int depth, std::vector<PngFile>& out) {
  for (const auto& e : entries_of(folder)) {
    std::error_code error;
    if (is_folder(e)) {
      LATHE_USER_CHECK(depth < kMaxDepth, "{}: expected at most {} folders in each other", e.path().native(),
                       kMaxDepth);
      collect(e.path().native(), label, depth + 1, out);
    } else if (is_png_name(e.path()) && e.symlink_status(error).type() == stdfs::file_type::regular) {
      out.push_back({e.path().native(), label});
    }
  }
}

// Whether there are train/ and test/.
bool has_split_folders(const std::string& folder) {
  const auto has = [&](const char* name) { return is_folder(stdfs::directory_entry(folder + "/" + name)); };
  return has("train") && has("test");
}

Listing list_folder(const PngConfig& c, Split split) {
  const bool own_folders = has_split_folders(c.folder);
  const std::string root = own_folders ? fmt::format("{}/{}", c.folder, to_string(split)) : c.folder;
  Listing all;
  for (const auto& e : entries_of(root)) {
    if (!is_folder(e)) continue;
    collect(e.path().native(), static_cast<int32_t>(all.classes), 0, all.files);
    ++all.classes;
  }
  // Files without folders will do where nobody asks for classes.
  if (c.label != LabelKind::class_index && all.classes == 0) collect(root, 0, kMaxDepth, all.files);
  LATHE_USER_CHECK(!all.files.empty(), "no images (.png) in {}{}", root,
                   c.label == LabelKind::class_index ? "/CLASS, a folder for each class" : "");
  if (c.label == LabelKind::class_index && c.classes > 0 && c.classes != all.classes)
    throw Misfit({"data.classes"},
                 fmt::format("expected {}, the number of folders in {}, got {}", all.classes, root, c.classes));
  const CounterRng rng(0, kFileStream, 0, 0);
  std::vector<std::pair<uint32_t, size_t>> order;
  for (size_t i = 0; i < all.files.size(); ++i) order.emplace_back(rng.bits(i), i);
  std::ranges::sort(order);
  Listing out;
  out.classes = all.classes;
  int64_t number = 0;
  for (const auto& [key, i] : order) {
    const bool test = number++ % kTestImageEvery == kTestImageEvery - 1;
    if (!own_folders && test != (split == Split::test)) continue;
    PngFile& file = all.files[i];
    const PngSize size = png_size(read_start(file.path, kHeaderBytes).bytes, file.path);
    if (size.width * size.height > c.max_pixels)
      ++out.left_out;
    else
      out.files.push_back(std::move(file));
    if (c.limit > 0 && static_cast<int64_t>(out.files.size()) == c.limit) break;
  }
  LATHE_USER_CHECK(!out.files.empty(), "{}: no {} images (class/name.png) of at most {} pixels", root, to_string(split),
                   c.max_pixels);
  return out;
}

TensorType png_label(const PngConfig& c) {
  return c.label == LabelKind::mask ? TensorType{DType::u8, {c.shape[0], c.shape[1]}} : TensorType{DType::i32, {}};
}

int64_t png_classes(const PngConfig& c, const Listing& l) { return c.label == LabelKind::mask ? 2 : l.classes; }

// Red, green, blue and opacity of each pixel; labels as bytes would not do for thousands of classes.
int64_t png_resident(const PngConfig& c, size_t files) {
  const int64_t each = checked_add(checked_mul(c.shape[0] * c.shape[1], 4, "data.shape"), 4, "data.shape");
  return checked_mul(static_cast<int64_t>(files), each, "data.shape");
}

// One pixel over a colour, with 3 channels or in grey.
void put_over(uint8_t* image, int64_t i, int64_t channels, const uint8_t* rgba, const int* under) {
  int colour[3];
  for (size_t k = 0; k < 3; ++k) colour[k] = (rgba[k] * rgba[3] + under[k] * (255 - rgba[3]) + 127) / 255;
  if (channels == 3)
    for (int64_t k = 0; k < 3; ++k) image[3 * i + k] = static_cast<uint8_t>(colour[k]);
  else
    image[i] = static_cast<uint8_t>((299 * colour[0] + 587 * colour[1] + 114 * colour[2] + 500) / 1000);
}

void put_on_white(uint8_t* image, int64_t pixels, int64_t channels, const uint8_t* rgba) {
  const int white[3] = {255, 255, 255};
  for (int64_t i = 0; i < pixels; ++i) put_over(image, i, channels, rgba + 4 * i, white);
}

class PngFolder final : public Source {
 public:
  PngFolder(const PngConfig& c, const Listing& listing, Split split) : c_(c), classes_(png_classes(c, listing)) {
    const int64_t pixels = c.shape[0] * c.shape[1];
    rgba_.resize(
        static_cast<size_t>(png_resident(c, listing.files.size()) - 4 * static_cast<int64_t>(listing.files.size())));
    for (const PngFile& f : listing.files) labels_.push_back(f.label);
    decode_all(listing.files, static_cast<size_t>(4 * pixels));
    fields_[0] = {"image", {DType::u8, c.shape}};
    fields_[1] = {c.label == LabelKind::mask ? "mask" : "label", png_label(c)};
    description_ = fmt::format("{} {} images as {} from {}{}", labels_.size(), to_string(split), to_string(c.shape),
                               c.folder, listing.left_out > 0 ? fmt::format(" ({} too large)", listing.left_out) : "");
  }

  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  std::span<const Field> fields() const override { return fields_; }
  void read(int64_t index, SampleSpans fields) const override {
    LATHE_CHECK(index >= 0 && index < size(), "sample {} of {}", index, size());
    const int64_t pixels = c_.shape[0] * c_.shape[1];
    const uint8_t* from = rgba_.data() + index * pixels * 4;
    auto* image = reinterpret_cast<uint8_t*>(fields[0].data());
    if (c_.label == LabelKind::mask) {
      read_mask(index, from, image, reinterpret_cast<uint8_t*>(fields[1].data()));
      return;
    }
    put_on_white(image, pixels, c_.shape[2], from);
    std::memcpy(fields[1].data(), &labels_[static_cast<size_t>(index)], sizeof(int32_t));
  }
  int64_t classes() const override { return classes_; }
  std::string description() const override { return description_; }
  int64_t resident_bytes() const override { return static_cast<int64_t>(rgba_.size() + 4 * labels_.size()); }
  std::optional<int32_t> label(int64_t index) const override {
    return c_.label == LabelKind::mask ? std::optional<int32_t>() : labels_[static_cast<size_t>(index)];
  }

 private:
  void decode_all(const std::vector<PngFile>& files, size_t bytes) {
    std::atomic<size_t> next{0};
    std::mutex mutex;
    std::exception_ptr error;
    size_t error_at = files.size();
    const auto work = [&] {
      for (size_t i = next++; i < files.size(); i = next++) {
        try {
          const PngImage whole = decode_png(read_file(files[i].path, kMaxPngBytes), files[i].path, c_.max_pixels);
          const PngImage part = scale_and_crop(whole, c_.shape[0], c_.shape[1]);
          std::memcpy(rgba_.data() + i * bytes, part.rgba.data(), bytes);
        } catch (...) {
          // The first of the files is named, whatever thread comes first.
          const std::lock_guard lock(mutex);
          if (i < error_at) error = std::current_exception(), error_at = i;
        }
      }
    };
    const unsigned threads = std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
    std::vector<std::jthread> others;
    for (unsigned i = 1; i < threads; ++i) others.emplace_back(work);
    work();
    others.clear();
    if (error) std::rethrow_exception(error);
  }

  void read_mask(int64_t index, const uint8_t* from, uint8_t* image, uint8_t* mask) const {
    const int64_t h = c_.shape[0], w = c_.shape[1];
    const CounterRng rng(c_.seed, kGroundStream, static_cast<uint32_t>(index),
                         static_cast<uint32_t>(static_cast<uint64_t>(index) >> 32));
    // Four colours, one in each corner.
    int corner[4][3];
    for (uint64_t k = 0; k < 12; ++k) corner[k / 3][k % 3] = static_cast<int>(rng.below(k, 256));
    for (int64_t y = 0; y < h; ++y)
      for (int64_t x = 0; x < w; ++x) {
        const int64_t i = y * w + x, down = 256 * y / h, right = 256 * x / w;
        int under[3];
        for (size_t k = 0; k < 3; ++k) {
          const int64_t top = corner[0][k] * (256 - right) + corner[1][k] * right;
          const int64_t bottom = corner[2][k] * (256 - right) + corner[3][k] * right;
          under[k] = static_cast<int>((top * (256 - down) + bottom * down) >> 16);
        }
        put_over(image, i, c_.shape[2], from + 4 * i, under);
        mask[i] = from[4 * i + 3] >= 128;
      }
    const int factor = static_cast<int>(std::lround(c_.noise / 147.80 * 65536));
    if (factor == 0) return;
    for (int64_t i = 0; i < h * w * c_.shape[2]; ++i) {
      const uint32_t bits = rng.bits(static_cast<uint64_t>(i) + 64);
      const int bell = static_cast<int>((bits & 0xff) + (bits >> 8 & 0xff) + (bits >> 16 & 0xff) + (bits >> 24)) - 510;
      image[i] = static_cast<uint8_t>(std::clamp(image[i] + ((bell * factor + (1 << 15)) >> 16), 0, 255));
    }
  }

  PngConfig c_;
  int64_t classes_;
  std::vector<uint8_t> rgba_;
  std::vector<int32_t> labels_;
  Field fields_[2];
  std::string description_;
};

}  // namespace

PngImage decode_png(std::span<const std::byte> file, const std::string& name, int64_t max_pixels) {
  const PngSize size = png_size(file, name);
  const int64_t pixels = size.width * size.height;
  LATHE_USER_CHECK(pixels <= max_pixels, "{}: expected at most {} pixels, got {} x {}", name, max_pixels, size.width,
                   size.height);
  PngImage out;
  out.height = size.height;
  out.width = size.width;
  // Compressed pixels expand by 1032 at most, and a pixel has at least one bit: a small file cannot ask for much.
  LATHE_USER_CHECK(pixels / 8 / 1032 <= static_cast<int64_t>(file.size()),
                   "{}: truncated: {} x {} pixels are more than {} bytes can hold", name, size.width, size.height,
                   file.size());
  check_chunks(file, name);
  out.rgba.resize(static_cast<size_t>(4 * pixels));
  Decoder d;
  d.file = file;
  d.out = out.rgba.data();
  d.row_bytes = static_cast<size_t>(4 * size.width);
  d.height = size.height;
  if (!run_decoder(d, kMaxPngSide)) throw UserError(fmt::format("{}: damaged PNG image: {}", name, d.message));
  return out;
}

PngImage scale_and_crop(const PngImage& in, int64_t height, int64_t width) {
  const double scale = std::min(static_cast<double>(in.height) / static_cast<double>(height),
                                static_cast<double>(in.width) / static_cast<double>(width));
  const double top = (static_cast<double>(in.height) - scale * static_cast<double>(height)) / 2;
  const double left = (static_cast<double>(in.width) - scale * static_cast<double>(width)) / 2;
  const auto rows = taps_of(in.height, top, scale, height), columns = taps_of(in.width, left, scale, width);
  // Across first, only the rows that are read; colours times opacity.
  const int64_t first = rows.front().first;
  const int64_t end = rows.back().first + static_cast<int64_t>(rows.back().weights.size());
  std::vector<float> across(static_cast<size_t>((end - first) * width * 4));
  std::vector<float> line(static_cast<size_t>(in.width * 4));
  for (int64_t y = first; y < end; ++y) {
    const uint8_t* p = in.rgba.data() + y * in.width * 4;
    for (int64_t x = 0; x < in.width; ++x) {
      const float alpha = p[4 * x + 3];
      for (int64_t k = 0; k < 3; ++k) line[static_cast<size_t>(4 * x + k)] = static_cast<float>(p[4 * x + k]) * alpha;
      line[static_cast<size_t>(4 * x + 3)] = alpha;
    }
    for (int64_t x = 0; x < width; ++x) {
      const Taps& t = columns[static_cast<size_t>(x)];
      float sum[4] = {0, 0, 0, 0};
      for (size_t i = 0; i < t.weights.size(); ++i) {
        const float* from = line.data() + 4 * (static_cast<size_t>(t.first) + i);
        for (size_t k = 0; k < 4; ++k) sum[k] += t.weights[i] * from[k];
      }
      std::memcpy(across.data() + ((y - first) * width + x) * 4, sum, sizeof sum);
    }
  }
  PngImage out{height, width, std::vector<uint8_t>(static_cast<size_t>(height * width * 4))};
  uint8_t* to = out.rgba.data();
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x, to += 4) {
      const Taps& t = rows[static_cast<size_t>(y)];
      float sum[4] = {0, 0, 0, 0};
      for (size_t i = 0; i < t.weights.size(); ++i) {
        const float* from = across.data() + ((t.first - first + static_cast<int64_t>(i)) * width + x) * 4;
        for (size_t k = 0; k < 4; ++k) sum[k] += t.weights[i] * from[k];
      }
      const auto byte = [](float v) { return static_cast<uint8_t>(std::clamp(v + 0.5f, 0.0f, 255.0f)); };
      for (size_t k = 0; k < 3; ++k) to[k] = sum[3] > 0 ? byte(sum[k] / sum[3]) : 0;
      to[3] = byte(sum[3]);
    }
  return out;
}

bool is_png(std::span<const std::byte> start) {
  return start.size() >= sizeof kPngMagic && std::memcmp(start.data(), kPngMagic, sizeof kPngMagic) == 0;
}

std::vector<std::byte> read_png(const std::string& path, const Shape& shape, bool scale, int64_t max_pixels) {
  LATHE_USER_CHECK(shape.ndim() == 3 && (shape[2] == 1 || shape[2] == 3),
                   "{}: expected samples of {}, which PNG images are not", path, to_string(shape));
  PngImage image = decode_png(read_file(path, kMaxPngBytes), path, max_pixels);
  if (scale) image = scale_and_crop(image, shape[0], shape[1]);
  LATHE_USER_CHECK(image.height == shape[0] && image.width == shape[1],
                   "{}: expected an image of {} (height, width, channels), got {} x {}", path, to_string(shape),
                   image.height, image.width);
  std::vector<std::byte> out(static_cast<size_t>(shape.numel()));
  put_on_white(reinterpret_cast<uint8_t*>(out.data()), shape[0] * shape[1], shape[2], image.rgba.data());
  return out;
}

std::vector<std::string> png_class_names(const std::string& folder) {
  std::vector<std::string> out;
  for (const auto& e : entries_of(has_split_folders(folder) ? folder + "/train" : folder))
    if (is_folder(e)) out.push_back(e.path().filename().native());
  return out;
}

std::unique_ptr<Source> load_png_folder(const PngConfig& c, Split split) {
  return std::make_unique<PngFolder>(c, list_folder(c, split), split);
}

SourceInfo describe_png_folder(const PngConfig& c, Split split) {
  const Listing l = list_folder(c, split);
  return {{DType::u8, c.shape},
          png_classes(c, l),
          static_cast<int64_t>(l.files.size()),
          png_resident(c, l.files.size()),
          png_label(c)};
}

}  // namespace lathe::data
