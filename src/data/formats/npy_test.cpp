#include "data/formats/npy.h"

#include <gtest/gtest.h>
#include <libdeflate.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "data/formats/zip.h"

namespace lathe::data {
namespace {

template <class T>
std::string npy(const char* descr, const std::string& shape, const std::vector<T>& values, bool fortran = false) {
  std::string header = std::string("{'descr': '") + descr + "', 'fortran_order': " + (fortran ? "True" : "False") +
                       ", 'shape': " + shape + ", }";
  header += std::string(63 - (10 + header.size()) % 64, ' ') + "\n";
  std::string out = "\x93NUMPY";
  out += std::string("\x01\x00", 2);
  out += static_cast<char>(header.size() & 255);
  out += static_cast<char>(header.size() >> 8);
  out += header;
  out.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return out;
}

std::vector<std::byte> bytes(const std::string& s) {
  const auto* p = reinterpret_cast<const std::byte*>(s.data());
  return {p, p + s.size()};
}

void little(std::string& out, uint64_t v, int count) {
  for (int i = 0; i < count; ++i) out += static_cast<char>(v >> (8 * i) & 255);
}

// An archive as NumPy writes it; every second member is deflated.
std::string npz(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string out, directory;
  int number = 0;
  for (const auto& [name, content] : members) {
    std::string packed = content;
    const int method = number++ % 2 ? 8 : 0;
    if (method == 8) {
      libdeflate_compressor* c = libdeflate_alloc_compressor(6);
      packed.resize(libdeflate_deflate_compress_bound(c, content.size()));
      packed.resize(libdeflate_deflate_compress(c, content.data(), content.size(), packed.data(), packed.size()));
      libdeflate_free_compressor(c);
    }
    const size_t offset = out.size();
    const uint32_t crc = libdeflate_crc32(0, content.data(), content.size());
    std::string common;
    little(common, static_cast<uint64_t>(method), 2);
    little(common, 0, 4);
    little(common, crc, 4);
    little(common, packed.size(), 4);
    little(common, content.size(), 4);
    little(common, name.size(), 2);
    little(common, 0, 2);
    little(out, 0x04034b50, 4);
    little(out, 20, 2);
    little(out, 0, 2);
    out += common + name + packed;
    little(directory, 0x02014b50, 4);
    little(directory, 20, 2);
    little(directory, 20, 2);
    little(directory, 0, 2);
    directory += common;
    little(directory, 0, 2);
    little(directory, 0, 2);
    little(directory, 0, 2);
    little(directory, 0, 4);
    little(directory, offset, 4);
    directory += name;
  }
  const size_t at = out.size();
  out += directory;
  little(out, 0x06054b50, 4);
  little(out, 0, 4);
  little(out, members.size(), 2);
  little(out, members.size(), 2);
  little(out, directory.size(), 4);
  little(out, at, 4);
  little(out, 0, 2);
  return out;
}

class Npy : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("lathe_npy_test_" + std::to_string(::getpid()) + "_" +
                                                        testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string file(const std::string& content, const std::string& name) {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return (folder_ / name).native();
  }
  std::filesystem::path folder_;
};

std::string failure(const std::string& content) {
  try {
    parse_npy(bytes(content), "a.npy");
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST_F(Npy, ElementsOfEveryType) {
  const NpyArray f = parse_npy(bytes(npy<float>("<f4", "(2, 2)", {1.5f, -2, 3, 4})), "a.npy");
  EXPECT_EQ(f.shape, (Shape{2, 2}));
  EXPECT_EQ(f.at(1), -2);
  EXPECT_EQ(parse_npy(bytes(npy<double>("<f8", "(1,)", {0.1})), "a").at(0), 0.1);
  EXPECT_EQ(parse_npy(bytes(npy<int64_t>("<i8", "(2,)", {1, -5})), "a").at(1), -5);
  EXPECT_EQ(parse_npy(bytes(npy<uint8_t>("|u1", "(2,)", {1, 255})), "a").at(1), 255);
  EXPECT_EQ(parse_npy(bytes(npy<int16_t>("<i2", "(1,)", {-300})), "a").at(0), -300);
}

TEST_F(Npy, HalvesBigEndiansAndBooleans) {
  // 1.5, -2, the smallest subnormal, the largest, infinity.
  const NpyArray h = parse_npy(bytes(npy<uint16_t>("<f2", "(5,)", {0x3e00, 0xc000, 1, 0x7bff, 0x7c00})), "a");
  EXPECT_EQ(h.at(0), 1.5);
  EXPECT_EQ(h.at(1), -2);
  EXPECT_EQ(h.at(2), std::ldexp(1.0, -24));
  EXPECT_EQ(h.at(3), 65504);
  EXPECT_TRUE(std::isinf(h.at(4)));
  EXPECT_FALSE(h.whole());
  EXPECT_EQ(parse_npy(bytes(npy<uint16_t>(">f2", "(2,)", {0x003e, 0x00c0})), "a").at(1), -2);
  EXPECT_EQ(parse_npy(bytes(npy<uint32_t>(">f4", "(2,)", {0, 0x0000c03f})), "a").at(1), 1.5);
  EXPECT_EQ(parse_npy(bytes(npy<uint16_t>(">i2", "(1,)", {0xd4fe})), "a").at(0), -300);
  const NpyArray b = parse_npy(bytes(npy<uint8_t>("|b1", "(3,)", {0, 1, 2})), "a");
  EXPECT_EQ(b.at(0) + b.at(1) + b.at(2), 2);
  EXPECT_TRUE(b.whole());
}

TEST_F(Npy, FortranOrderIsTurned) {
  // a[i, j, k] = 100 i + 10 j + k of shape (2, 3, 2), the first axis fastest.
  std::vector<int16_t> values;
  for (int k = 0; k < 2; ++k)
    for (int j = 0; j < 3; ++j)
      for (int i = 0; i < 2; ++i) values.push_back(static_cast<int16_t>(100 * i + 10 * j + k));
  const NpyArray a = parse_npy(bytes(npy<int16_t>("<i2", "(2, 3, 2)", values, true)), "a.npy");
  ASSERT_EQ(a.shape, (Shape{2, 3, 2}));
  for (int64_t n = 0; n < 12; ++n) EXPECT_EQ(a.at(n), static_cast<double>(100 * (n / 6) + 10 * (n / 2 % 3) + n % 2));
  EXPECT_EQ(parse_npy(bytes(npy<float>("<f4", "(0, 2)", {}, true)), "a").shape.numel(), 0);
  // A sample of the source is a row.
  file(npy<float>("<f4", "(5, 2)", {0, 1, 2, 3, 4, 10, 11, 12, 13, 14}, true), "x.npy");
  file(npy<uint8_t>("|b1", "(5,)", {0, 1, 0, 1, 0}), "y.npy");
  const auto test = load_npy({.path = folder_.native(), .standardize = false}, Split::test);
  float x[2];
  int32_t y = 1;
  const std::span<std::byte> spans[] = {std::as_writable_bytes(std::span(x)), std::as_writable_bytes(std::span(&y, 1))};
  test->read(0, spans);
  EXPECT_EQ(x[0], 4);
  EXPECT_EQ(x[1], 14);
  EXPECT_EQ(test->classes(), 2);
}

TEST_F(Npy, WhatIsNoArrayIsRefused) {
  const auto has = [&](const std::string& content, const char* part) {
    const std::string text = failure(content);
    EXPECT_NE(text.find(part), std::string::npos) << text << "\nwanted: " << part;
  };
  has("", "expected an .npy file");
  has(npy<float>("|O", "(1,)", {1}), "never unpickled");
  has(npy<double>("<c8", "(1,)", {1}), "expected numbers");
  has(npy<float>("|f4", "(1,)", {1}), "expected numbers");
  has(npy<float>("<f4", "(3, 1)", {1, 2}, true), "truncated");
  has(npy<uint8_t>("<f1", "(1,)", {1}), "expected numbers");
  has(npy<float>("<f4", "(3,)", {1, 2}), "truncated");
  has(npy<float>("<f4", "(1,)", {1, 2}), "too long");
  has(npy<float>("<f4", "(9223372036854775807, 9223372036854775807)", {1}), ": shape");
  has(npy<float>("<f4", "(1, -1)", {1}), "expected a length");
  has(npy<float>("<f4", "(1", {1}), "expected a length");
  has(npy<float>("<f4", "(1,1,1,1,1,1,1,1,1,1)", {1}), "at most 8 dimensions");
}

TEST_F(Npy, AnArchiveHasImagesAndLabels) {
  std::vector<uint8_t> pixels(3 * 2 * 2);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i);
  const std::string path = file(npz({{"x_train.npy", npy<uint8_t>("|u1", "(3, 2, 2)", pixels)},
                                     {"y_train.npy", npy<int64_t>("<i8", "(3,)", {2, 0, 1})},
                                     {"x_test.npy", npy<uint8_t>("|u1", "(3, 2, 2)", pixels)},
                                     {"y_test.npy", npy<int64_t>("<i8", "(3,)", {1, 1, 3})}}),
                                "a.npz");
  const auto train = load_npy({.path = path, .classes = 3}, Split::train);
  EXPECT_EQ(train->size(), 3);
  EXPECT_EQ(train->fields()[0].type, (TensorType{DType::u8, {2, 2, 1}}));
  std::byte image[4];
  int32_t label = 0;
  const std::span<std::byte> spans[] = {std::span(image), std::as_writable_bytes(std::span(&label, 1))};
  train->read(1, spans);
  EXPECT_EQ(image[3], std::byte{7});
  EXPECT_EQ(label, 0);
  EXPECT_THROW(load_npy({.path = path, .classes = 3}, Split::test), Misfit);
  EXPECT_EQ(load_npy({.path = path, .classes = 4}, Split::test)->classes(), 4);
  EXPECT_THROW(load_npy({.path = path, .label = LabelKind::mask, .classes = 4}, Split::train), UserError);
}

TEST_F(Npy, AFolderHasNumbersValuesAndTokens) {
  file(npy<double>("<f8", "(10, 4)",
                   [] {
                     std::vector<double> v(40);
                     for (size_t i = 0; i < 40; ++i)
                       v[i] = static_cast<double>(i / 4) + 100.0 * static_cast<double>(i % 4);
                     return v;
                   }()),
       "x.npy");
  file(npy<float>("<f4", "(10,)", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), "y.npy");
  const NpyConfig c{.path = folder_.native(), .label = LabelKind::value, .row = 2};
  const auto train = load_npy(c, Split::train), test = load_npy(c, Split::test);
  EXPECT_EQ(train->size(), 8);
  EXPECT_EQ(test->size(), 2);
  EXPECT_EQ(train->fields()[0].type, (TensorType{DType::f32, {2, 2, 1}}));
  float x[4], y = 0;
  const std::span<std::byte> spans[] = {std::as_writable_bytes(std::span(x)), std::as_writable_bytes(std::span(&y, 1))};
  test->read(1, spans);
  // Row 9; the training rows 0 1 2 3 5 6 7 8 have mean 4 and variance 7.5.
  for (const float v : x) EXPECT_NEAR(v, 5 / std::sqrt(7.5), 1e-5);
  EXPECT_NEAR(y, 5 / std::sqrt(7.5), 1e-5);
  EXPECT_NEAR(test->label_units().mean, 4, 1e-9);
  train->read(4, spans);
  EXPECT_NEAR(x[0], 1 / std::sqrt(7.5), 1e-5) << "the fifth training row is row 5";

  file(npy<int32_t>("<i4", "(5, 3)", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}), "x.npy");
  file(npy<uint8_t>("|u1", "(5,)", {0, 1, 0, 1, 0}), "y.npy");
  const auto tokens = load_npy({.path = folder_.native(), .classes = 2, .vocab = 15}, Split::train);
  EXPECT_EQ(tokens->fields()[0].type, (TensorType{DType::i32, {3}}));
  EXPECT_THROW(load_npy({.path = folder_.native(), .classes = 2, .vocab = 14}, Split::test), Misfit);
  file(npy<int32_t>("<i4", "(5, 3)", {0, 1, 2, 3, -1, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}), "x.npy");
  try {
    load_npy({.path = folder_.native(), .classes = 2, .vocab = 15}, Split::train);
    ADD_FAILURE() << "expected an error";
  } catch (const UserError& e) {
    EXPECT_EQ(e.exit_code(), Exit::bad_data);
    EXPECT_NE(std::string(e.what()).find("expected tokens of at least 0, got -1 in sample 1"), std::string::npos)
        << e.what();
  }
}

TEST_F(Npy, NumbersOfAnyScaleAreStandardised) {
  std::vector<double> x, y;
  for (int i = 0; i < 10; ++i) {
    x.insert(x.end(), {1e9 + 2 * i, 1e-7 * i, 0.1});
    y.push_back(1e-7 * i);
  }
  file(npy<double>("<f8", "(10, 3)", x), "x.npy");
  file(npy<double>("<f8", "(10,)", y), "y.npy");
  const auto test = load_npy({.path = folder_.native(), .label = LabelKind::value}, Split::test);
  float row[3], target = 0;
  const std::span<std::byte> spans[] = {std::as_writable_bytes(std::span(row)),
                                        std::as_writable_bytes(std::span(&target, 1))};
  test->read(1, spans);
  // As 0 1 2 3 5 6 7 8 and 9.
  EXPECT_NEAR(row[0], 5 / std::sqrt(7.5), 1e-5);
  EXPECT_NEAR(row[1], 5 / std::sqrt(7.5), 1e-5);
  EXPECT_EQ(row[2], 0);
  EXPECT_NEAR(target, 5 / std::sqrt(7.5), 1e-5);
  EXPECT_NEAR(test->label_units().scale, 1e-7 * std::sqrt(7.5), 1e-13);
}

TEST_F(Npy, ColumnsToPredictAreStandardisedOneByOne) {
  file(npy<float>("<f4", "(10, 1)", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), "x.npy");
  std::vector<double> y(20);
  for (size_t i = 0; i < 10; ++i)
    y[2 * i] = 1e6 * static_cast<double>(i), y[2 * i + 1] = 0.3 - 1e-2 * static_cast<double>(i);
  file(npy<double>("<f8", "(10, 2)", y), "y.npy");
  const NpyConfig c{.path = folder_.native(), .label = LabelKind::value};
  const auto test = load_npy(c, Split::test);
  EXPECT_EQ(test->fields()[1].type, (TensorType{DType::f32, {2}}));
  float x = 0, target[2];
  const std::span<std::byte> spans[] = {std::as_writable_bytes(std::span(&x, 1)),
                                        std::as_writable_bytes(std::span(target))};
  test->read(1, spans);
  // Row 9; of the training rows 0 1 2 3 5 6 7 8 the mean is 4 and the variance 7.5.
  EXPECT_NEAR(target[0], 5 / std::sqrt(7.5), 1e-5);
  EXPECT_NEAR(target[1], -5 / std::sqrt(7.5), 1e-5);
  const LabelUnits u = test->label_units();
  EXPECT_NEAR(u.mean_of(0), 4e6, 1e-3);
  EXPECT_NEAR(u.mean_of(1), 0.26, 1e-9);
  EXPECT_NEAR(u.scale_of(0), 1e6 * std::sqrt(7.5), 1e-3);
  EXPECT_NEAR(u.scale_of(1), 1e-2 * std::sqrt(7.5), 1e-9);
}

TEST_F(Npy, TheNumberThatIsNoneIsNamed) {
  std::vector<double> numbers(40, 1.0);
  file(npy<uint8_t>("|u1", "(10,)", {0, 1, 0, 1, 0, 1, 0, 1, 0, 1}), "y.npy");
  for (const double bad : {std::nan(""), 1e300}) {
    numbers[21] = bad;
    file(npy<double>("<f8", "(10, 4)", numbers), "x.npy");
    try {
      load_npy({.path = folder_.native(), .classes = 2}, Split::train);
      ADD_FAILURE() << bad;
    } catch (const UserError& e) {
      EXPECT_NE(std::string(e.what()).find("element 21 is "), std::string::npos) << e.what();
    }
  }
}

TEST_F(Npy, DamagedArchivesAreRefused) {
  const std::string good = npz({{"x.npy", npy<float>("<f4", "(5, 1)", {1, 2, 3, 4, 5})},
                                {"y.npy", npy<uint8_t>("|u1", "(5,)", {0, 1, 0, 1, 0})}});
  ASSERT_NO_THROW(load_npy({.path = file(good, "a.npz")}, Split::train));
  // Every truncation and a flip of every byte: an error or the same numbers, never a crash.
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good.substr(0, i);
    EXPECT_THROW(load_npy({.path = file(bad, "a.npz")}, Split::train), UserError) << i;
    bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x55);
    try {
      load_npy({.path = file(bad, "a.npz")}, Split::train);
    } catch (const UserError&) {
    }
  }
}

TEST_F(Npy, NewSamplesHaveTheStatisticsOfTraining) {
  std::vector<float> x;
  for (size_t i = 0; i < 20; ++i) x.push_back(static_cast<float>(i / 2) + 100.0f * static_cast<float>(i % 2));
  file(npy<float>("<f4", "(10, 2)", x), "x.npy");
  file(npy<uint8_t>("|u1", "(10,)", {0, 1, 0, 1, 0, 1, 0, 1, 0, 1}), "y.npy");
  const NpyConfig c{.path = folder_.native()};
  const std::string rows = npy<float>("<f4", "(2, 2)", {4, 104, 9, 109});
  const auto check = [&](const Samples& s) {
    EXPECT_EQ(s.type, (TensorType{DType::f32, {1, 2, 1}}));
    ASSERT_EQ(s.names.size(), 2u);
    EXPECT_TRUE(s.names[1].ends_with(":1"));
    float v[4];
    ASSERT_EQ(s.bytes.size(), sizeof v);
    std::memcpy(v, s.bytes.data(), sizeof v);
    // The training rows have mean 4 and variance 7.5 in both columns.
    EXPECT_NEAR(v[0], 0, 1e-5);
    EXPECT_NEAR(v[3], 5 / std::sqrt(7.5), 1e-5);
  };
  check(read_npy_samples(c, learn_npy(c), file(rows, "new.npy")));
  check(read_npy_samples(c, learn_npy(c), file(npz({{"x.npy", rows}}), "new.npz")));
  EXPECT_TRUE(is_npy(bytes(rows)));
  EXPECT_TRUE(is_npy(bytes(npz({{"x.npy", rows}}))));
  EXPECT_FALSE(is_npy(bytes("P5 ...")));
  EXPECT_THROW(read_npy_samples(c, learn_npy(c), file(npy<float>("<f4", "(2, 3)", {1, 2, 3, 4, 5, 6}), "new.npy")),
               UserError);
  EXPECT_THROW(read_npy_samples(c, learn_npy(c), file(npy<float>("<f4", "(4,)", {1, 2, 3, 4}), "new.npy")), UserError);
  EXPECT_THROW(read_npy_samples(c, learn_npy(c), file(npy<float>("<f4", "(1, 2)", {1, NAN}), "new.npy")), UserError);
  EXPECT_THROW(read_npy_samples(c, learn_npy(c), file(npz({{"z.npy", rows}}), "new.npz")), UserError);
  // Taken as they are: no arrays of training are asked for.
  const Samples plain = read_npy_samples({.standardize = false}, {}, file(rows, "new.npy"));
  float first = 0;
  std::memcpy(&first, plain.bytes.data(), sizeof first);
  EXPECT_EQ(first, 4);
}

}  // namespace
}  // namespace lathe::data
