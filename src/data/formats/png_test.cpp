#include "data/formats/png.h"

#include <gtest/gtest.h>
#include <png.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "data/noise.h"

namespace lathe::data {
namespace {

// PNG files made by libpng.
std::vector<std::byte> encode(const std::vector<uint8_t>& rgba, int64_t height, int64_t width) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = PNG_FORMAT_RGBA;
  png_alloc_size_t size = 0;
  EXPECT_TRUE(png_image_write_to_memory(&image, nullptr, &size, 0, rgba.data(), 0, nullptr));
  std::vector<std::byte> out(size);
  EXPECT_TRUE(png_image_write_to_memory(&image, out.data(), &size, 0, rgba.data(), 0, nullptr));
  return out;
}

std::vector<uint8_t> filled(int64_t pixels, std::initializer_list<uint8_t> colour) {
  std::vector<uint8_t> out;
  for (int64_t i = 0; i < pixels; ++i) out.insert(out.end(), colour);
  return out;
}

class Png : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("lathe_png_test_" + std::to_string(::getpid()) + "_" +
                                                        testing::UnitTest::GetInstance()->current_test_info()->name());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void save(const std::string& path, const std::vector<std::byte>& bytes) {
    std::filesystem::create_directories((folder_ / path).parent_path());
    std::ofstream(folder_ / path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  std::filesystem::path folder_;
};

TEST_F(Png, PixelsComeBack) {
  std::vector<uint8_t> pixels;
  for (int i = 0; i < 5 * 7 * 4; ++i) pixels.push_back(static_cast<uint8_t>(i * 37));
  const PngImage image = decode_png(encode(pixels, 5, 7), "a.png", 1000);
  EXPECT_EQ(image.height, 5);
  EXPECT_EQ(image.width, 7);
  EXPECT_EQ(image.rgba, pixels);
  EXPECT_THROW(decode_png(encode(pixels, 5, 7), "a.png", 34), UserError);
}

TEST_F(Png, DamagedFilesAreRefused) {
  const auto good = encode(filled(64, {1, 2, 3, 255}), 8, 8);
  for (size_t i = 0; i < good.size(); ++i) {
    EXPECT_NO_FATAL_FAILURE({
      std::vector<std::byte> bad(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_THROW(decode_png(bad, "a.png", 1000), UserError) << i;
      bad = good;
      bad[i] ^= std::byte{0x55};
      try {
        decode_png(bad, "a.png", 1000);
      } catch (const UserError&) {
      }
    });
  }
  // A chunk that declares more than the file holds: libpng would ask for as much.
  auto chunk = good;
  const unsigned char greedy[] = {0x7f, 0xff, 0xff, 0xff, 't', 'E', 'X', 't'};
  for (size_t i = 0; i < sizeof greedy; ++i)
    chunk.insert(chunk.begin() + 33 + static_cast<std::ptrdiff_t>(i), std::byte{greedy[i]});
  try {
    decode_png(chunk, "a.png", 1000);
    ADD_FAILURE() << "no error";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("a chunk at byte 33"), std::string::npos) << e.what();
  }
  // A small file that declares a large image asks for no memory.
  auto large = good;
  large[18] = std::byte{0xff};
  EXPECT_THROW(decode_png(large, "a.png", int64_t{1} << 40), UserError);
}

TEST_F(Png, ScalingKeepsColoursAndCutsTheMiddle) {
  // Left half red, right half transparent (with a colour that must not show).
  std::vector<uint8_t> pixels;
  for (int y = 0; y < 16; ++y)
    for (int x = 0; x < 32; ++x) {
      const bool left = x < 16;
      for (const int v : {left ? 200 : 0, left ? 0 : 255, 0, left ? 255 : 0}) pixels.push_back(static_cast<uint8_t>(v));
    }
  const PngImage small = scale_and_crop({16, 32, pixels}, 4, 4);  // of columns 8 to 24
  for (int y = 0; y < 4; ++y) {
    const uint8_t* row = small.rgba.data() + y * 16;
    EXPECT_EQ(row[0], 200);
    EXPECT_EQ(row[1], 0);
    EXPECT_EQ(row[3], 255);
    EXPECT_EQ(row[15], 0);
    for (int x = 0; x < 4; ++x)
      if (row[4 * x + 3] > 0) {
        EXPECT_EQ(row[4 * x + 1], 0) << "what is transparent has no colour";
      }
  }
  const PngImage same = scale_and_crop({16, 32, pixels}, 16, 32);
  EXPECT_EQ(same.rgba[0], 200);
  EXPECT_EQ(same.rgba[4 * 15 + 3], 255);
  EXPECT_EQ(same.rgba[4 * 16 + 3], 0);
}

TEST_F(Png, FoldersAreClasses) {
  for (int i = 0; i < 10; ++i) {
    save("b/deep/" + std::to_string(i) + ".png", encode(filled(16, {0, 0, 255, 255}), 4, 4));
    save("a/" + std::to_string(i) + ".PNG", encode(filled(16, {255, 0, 0, 255}), 4, 4));
  }
  save("a/huge.png", encode(filled(100, {0, 0, 0, 255}), 10, 10));
  save("a/notes.txt", {});
  std::filesystem::create_symlink(folder_ / "a" / "0.PNG", folder_ / "a" / "again.png");
  const PngConfig c{.folder = folder_.native(), .shape = {2, 2, 3}, .classes = 2, .max_pixels = 50};
  const auto train = load_png_folder(c, Split::train), test = load_png_folder(c, Split::test);
  EXPECT_EQ(train->size() + test->size(), 20);
  EXPECT_EQ(test->size(), 4);
  std::byte image[12];
  int32_t label = 0;
  const std::span<std::byte> spans[] = {std::span(image), std::as_writable_bytes(std::span(&label, 1))};
  int red = 0;
  for (int64_t i = 0; i < train->size(); ++i) {
    train->read(i, spans);
    EXPECT_EQ(image[0], label == 0 ? std::byte{255} : std::byte{0});
    EXPECT_EQ(image[2], label == 1 ? std::byte{255} : std::byte{0});
    red += label == 0;
  }
  EXPECT_GT(red, 4);
  EXPECT_LT(red, 12);
  const SourceInfo info = describe_png_folder(c, Split::train);
  EXPECT_EQ(info.size, train->size());
  EXPECT_EQ(info.resident_bytes, train->resident_bytes());
  EXPECT_EQ(info.classes, 2);
  PngConfig wrong = c;
  wrong.classes = 3;
  EXPECT_THROW(load_png_folder(wrong, Split::train), Misfit);
  save("a/5.PNG", {});
  EXPECT_THROW((load_png_folder(c, Split::train), load_png_folder(c, Split::test)), UserError);
}

TEST_F(Png, AFolderWithoutImagesIsRefused) {
  const auto refusal = [&](LabelKind target) {
    try {
      load_png_folder({.folder = folder_.native(), .shape = {2, 2, 3}, .label = target, .classes = 2}, Split::train);
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  std::filesystem::create_directories(folder_);
  EXPECT_EQ(refusal(LabelKind::class_index),
            "no images (.png) in " + folder_.native() + "/CLASS, a folder for each class");
  EXPECT_EQ(refusal(LabelKind::mask), "no images (.png) in " + folder_.native());
  std::filesystem::create_directories(folder_ / "a");
  EXPECT_EQ(refusal(LabelKind::mask), "no images (.png) in " + folder_.native());
}

TEST_F(Png, MasksAreWhereTheImageIsOpaque) {
  std::vector<uint8_t> pixels = filled(16, {10, 20, 30, 255});
  for (size_t i = 0; i < 8; ++i) pixels[4 * i + 3] = 0;  // the upper half
  for (int i = 0; i < 5; ++i) save("x/" + std::to_string(i) + ".png", encode(pixels, 4, 4));
  const PngConfig c{.folder = folder_.native(), .shape = {4, 4, 3}, .label = LabelKind::mask};
  const auto source = load_png_folder(c, Split::train);
  EXPECT_EQ(source->classes(), 2);
  std::byte image[48], mask[16];
  const std::span<std::byte> spans[] = {std::span(image), std::span(mask)};
  source->read(2, spans);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(mask[i], std::byte(i >= 8)) << i;
  EXPECT_EQ(image[3 * 15], std::byte{10});
  EXPECT_EQ(image[3 * 15 + 2], std::byte{30});
  const std::vector<std::byte> once(std::begin(image), std::end(image));
  source->read(1, spans);
  EXPECT_NE(once, std::vector<std::byte>(std::begin(image), std::end(image))) << "each has a background of its own";
  source->read(2, spans);
  EXPECT_EQ(once, std::vector<std::byte>(std::begin(image), std::end(image))) << "and always the same";
}

TEST_F(Png, NoiseHasItsDeviation) {
  for (int i = 0; i < 5; ++i)
    save("x/" + std::to_string(i) + ".png", encode(filled(64 * 64, {128, 128, 128, 255}), 64, 64));
  const PngConfig c{.folder = folder_.native(), .shape = {64, 64, 3}};
  const auto noisy = with_noise(load_png_folder(c, Split::train), 20, 1);
  EXPECT_EQ(noisy->classes(), 3);
  std::vector<std::byte> image(64 * 64 * 3), clean = image;
  const std::span<std::byte> spans[] = {image, clean};
  noisy->read(0, spans);
  double sum = 0, squares = 0;
  for (size_t i = 0; i < image.size(); ++i) {
    EXPECT_EQ(clean[i], std::byte{128});
    const double d = std::to_integer<int>(image[i]) - 128;
    sum += d;
    squares += d * d;
  }
  const auto n = static_cast<double>(image.size());
  EXPECT_NEAR(sum / n, 0, 0.7);
  EXPECT_NEAR(std::sqrt(squares / n), 20, 0.5);
}

TEST_F(Png, OneImageAsASample) {
  save("a.png", encode(filled(8 * 16, {10, 20, 30, 0}), 8, 16));  // all transparent
  const std::string path = (folder_ / "a.png").native();
  EXPECT_TRUE(is_png(encode(filled(1, {0, 0, 0, 0}), 1, 1)));
  EXPECT_EQ(read_png(path, {4, 4, 3}, true, 1000), std::vector<std::byte>(4 * 4 * 3, std::byte{255}));
  EXPECT_EQ(read_png(path, {8, 16, 1}, false, 1000).size(), 8u * 16u);
  EXPECT_THROW(read_png(path, {4, 4, 3}, false, 1000), UserError);
  EXPECT_THROW(read_png(path, {4, 4, 2}, true, 1000), UserError);
  EXPECT_THROW(read_png(path, {4, 4, 3}, true, 100), UserError);
}

TEST_F(Png, FoldersNameTheClasses) {
  for (const char* name : {"b/x.png", "a/y.png", "loose.png"}) save(name, encode(filled(1, {1, 2, 3, 255}), 1, 1));
  EXPECT_EQ(png_class_names(folder_.native()), (std::vector<std::string>{"a", "b"}));
}

}  // namespace
}  // namespace lathe::data
