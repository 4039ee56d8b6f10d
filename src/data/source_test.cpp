// Sources: IDX files good and bad, synthetic images, text, subsets.
#include "data/source.h"

#include <gtest/gtest.h>
#include <libdeflate.h>
#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include "base/error.h"
#include "data/file.h"
#include "data/formats/idx.h"
#include "data/synthetic.h"
#include "data/text.h"

namespace lathe::data {
namespace {

using Bytes = std::vector<std::byte>;

Bytes idx_bytes(uint32_t magic, const std::vector<uint32_t>& dims, size_t elements, uint8_t modulo = 251) {
  Bytes out;
  const auto put = [&](uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<std::byte>(value >> shift & 0xff));
  };
  put(magic);
  for (uint32_t dim : dims) put(dim);
  for (size_t i = 0; i < elements; ++i) out.push_back(static_cast<std::byte>(i % modulo));
  return out;
}

Bytes gzip(const Bytes& in, int level = 6) {
  libdeflate_compressor* c = libdeflate_alloc_compressor(level);
  Bytes out(libdeflate_gzip_compress_bound(c, in.size()));
  out.resize(libdeflate_gzip_compress(c, in.data(), in.size(), out.data(), out.size()));
  libdeflate_free_compressor(c);
  return out;
}

void expect_error(const std::function<void()>& f, Exit exit, const std::vector<std::string>& parts) {
  try {
    f();
    ADD_FAILURE() << "no error; expected " << parts.front();
  } catch (const UserError& e) {
    EXPECT_EQ(e.exit_code(), exit) << e.what();
    for (const std::string& part : parts) EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

void expect_misfit(const std::function<void()>& f, const std::string& key, const std::vector<std::string>& parts) {
  expect_error(
      [&] {
        try {
          f();
        } catch (const Misfit& e) {
          EXPECT_EQ(e.keys().front(), key) << e.what();
          throw;
        }
      },
      Exit::bad_recipe, parts);
}

void expect_info(const SourceInfo& info, const Source& source) {
  const SourceInfo truth = info_of(source);
  EXPECT_EQ(info.sample, truth.sample);
  EXPECT_EQ(info.classes, truth.classes);
  EXPECT_EQ(info.size, truth.size);
  EXPECT_EQ(info.resident_bytes, truth.resident_bytes);
  EXPECT_EQ(info.label, truth.label);
}

class TempFolder : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() / ("lathe_source_test_" + std::to_string(::getpid()) + "_" +
                                                      testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(path_);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  std::string write(const std::string& name, const Bytes& content) {
    const std::string path = (path_ / name).string();
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(content.data()), static_cast<std::streamsize>(content.size()));
    return path;
  }
  std::filesystem::path path_;
};
using Idx = TempFolder;
using TextFile = TempFolder;

TEST(IdxParse, ReadsPlainAndGzip) {
  const Bytes plain = idx_bytes(0x803, {3, 4, 5}, 60);
  for (const Bytes& content : {plain, gzip(plain), gzip(plain, 0)}) {
    const IdxArray array = parse_idx(content, "x");
    EXPECT_EQ(array.shape, (Shape{3, 4, 5}));
    for (int i = 0; i < 60; ++i) EXPECT_EQ(array.elements()[i], i);
  }
  // Larger than the first buffer of the unpacker, stored and compressed.
  const Bytes large = idx_bytes(0x803, {100, 50, 70}, 350000);
  for (int level : {0, 1, 6, 12}) EXPECT_EQ(parse_idx(gzip(large, level), "x").file, large) << level;
}

TEST(IdxParse, RefusesBadContent) {
  const auto refuse = [](const Bytes& content, const std::vector<std::string>& parts) {
    expect_error([&] { parse_idx(content, "file.idx"); }, Exit::bad_data, parts);
  };
  const Bytes good = idx_bytes(0x803, {100, 50, 70}, 350000);
  refuse({}, {"file.idx", "at least 4 bytes", "0 bytes"});
  refuse(idx_bytes(0x12345678, {1}, 1), {"magic 12345678"});
  refuse(idx_bytes(0xd03, {1, 1, 1}, 4), {"element type 08", "0d"});
  refuse(idx_bytes(0x800, {}, 0), {"1 to 4", "got 0"});
  refuse(idx_bytes(0x805, {1, 1, 1, 1, 1}, 1), {"1 to 4", "got 5"});
  refuse(idx_bytes(0x803, {1}, 0), {"truncated", "16 bytes", "8 bytes"});
  refuse(idx_bytes(0x803, {2, 3, 4}, 23), {"truncated", "expected 40 bytes", "got 39 bytes"});
  refuse(idx_bytes(0x803, {2, 3, 4}, 25), {"too long", "expected 40 bytes", "got 41 bytes"});
  refuse(idx_bytes(0x804, {0xffffffff, 0xffffffff, 0xffffffff, 2}, 100), {"overflows"});
  refuse(idx_bytes(0x803, {0xffffffff, 0xffffffff, 1}, 100), {"file.idx"});

  const Bytes packed = gzip(good);
  refuse(Bytes(packed.begin(), packed.begin() + 60), {"damaged or truncated", "60 bytes"});
  refuse(Bytes(packed.begin(), packed.end() - 1), {"expected 350016 bytes"});
  Bytes longer = packed;
  longer.push_back({});
  refuse(longer, {"1 more bytes"});
  refuse(gzip(idx_bytes(0x803, {2, 3, 4}, 23)), {"truncated", "expected 40 bytes", "got 39 bytes"});
  refuse(gzip(idx_bytes(0x803, {100, 50, 70}, 349999)), {"truncated", "expected 350016 bytes", "got 350015 bytes"});
  // Bombs: much data behind small dimensions, and large dimensions with little behind them. Neither may allocate.
  refuse(gzip(idx_bytes(0x803, {1, 2, 2}, 50'000'000, 1)), {"too long", "expected 20 bytes"});
  refuse(gzip(idx_bytes(0x803, {100, 50, 70}, 50'000'000, 1)), {"too long", "expected 350016 bytes"});
  refuse(gzip(idx_bytes(0x803, {1u << 20, 1u << 15, 1u << 15}, 350000)), {"more than", "compressed bytes can hold"});
}

TEST(IdxParse, EveryTruncationIsAnError) {
  const Bytes plain = idx_bytes(0x803, {3, 4, 5}, 60);
  for (const Bytes& content : {plain, gzip(plain)}) {
    for (size_t n = 0; n < content.size(); ++n) {
      EXPECT_THROW(parse_idx(Bytes(content.begin(), content.begin() + static_cast<long>(n)), "x"), UserError) << n;
    }
  }
}

TEST_F(Idx, ReadsPairs) {
  const std::string images = write("images", idx_bytes(0x803, {4, 2, 3}, 24));
  const std::string labels = write("labels", idx_bytes(0x801, {4}, 4));
  const auto source = load_idx(images, labels, 0);
  EXPECT_EQ(source->size(), 4);
  EXPECT_EQ(source->classes(), 4);
  EXPECT_EQ(to_string(source->fields()[0].type), "u8[2, 3, 1]");
  Bytes image(6), label(4);
  const std::span<std::byte> spans[] = {image, label};
  source->read(2, spans);
  EXPECT_EQ(image[0], std::byte{12});
  EXPECT_EQ(label[0], std::byte{2});

  expect_misfit([&] { load_idx(images, labels, 3); }, "data.classes",
                {labels, "more than 3", "label of sample 3", "got 3"});
  expect_error([&] { load_idx(labels, images, 3); }, Exit::bad_data, {labels, "3 or 4 dimensions"});
  const std::string fewer = write("fewer", idx_bytes(0x801, {3}, 3));
  expect_error([&] { load_idx(images, fewer, 0); }, Exit::bad_data, {"expected 4 labels", "got 3"});
  const std::string none = write("none", idx_bytes(0x803, {0, 2, 3}, 0));
  expect_error([&] { load_idx(none, fewer, 0); }, Exit::bad_data, {"no samples"});
}

TEST_F(Idx, MissingAndSpecialFiles) {
  expect_error([&] { load_fashion_mnist(path_.string(), Split::train); }, Exit::missing_input,
               {"train-images-idx3-ubyte.gz", "no such file", "dataset-fashion-mnist", "data.path"});
  const std::string fifo = (path_ / "fifo").string();
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  expect_error([&] { read_file(fifo, 100); }, Exit::bad_data, {"regular file"});
  expect_error([&] { read_file("/dev/zero", 100); }, Exit::bad_data, {"regular file"});
  expect_error([&] { read_file(path_.string(), 100); }, Exit::bad_data, {"regular file"});
  const std::string large = write("large", Bytes(101));
  expect_error([&] { read_file(large, 100); }, Exit::bad_data, {"at most 100 bytes, got 101"});
}

TEST_F(Idx, FindsMnistNames) {
  write("train-images-idx3-ubyte", idx_bytes(0x803, {4, 2, 3}, 24));
  write("train-labels-idx1-ubyte.gz", gzip(idx_bytes(0x801, {4}, 4)));
  EXPECT_EQ(load_idx_folder(path_.string(), Split::train, 10)->size(), 4);
}

TEST(FashionMnist, HasKnownContent) {
  if (!std::filesystem::exists(kFashionMnistFolder)) GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  const auto test = load_fashion_mnist("", Split::test);
  EXPECT_EQ(test->size(), 10000);
  EXPECT_EQ(load_fashion_mnist("", Split::train)->size(), 60000);
  std::map<int32_t, int> histogram;
  Bytes image(784);
  int32_t label = 0;
  const std::span<std::byte> spans[] = {image, std::as_writable_bytes(std::span(&label, 1))};
  for (int64_t i = 0; i < test->size(); ++i) {
    test->read(i, spans);
    ++histogram[label];
  }
  ASSERT_EQ(histogram.size(), 10u);
  for (const auto& [k, count] : histogram) EXPECT_EQ(count, 1000) << k;
}

TEST(Synthetic, IsDeterministicAndClassConditional) {
  const SyntheticConfig config{.shape = {8, 8, 2}, .classes = 3, .count = 300, .seed = 5, .split = Split::train};
  SyntheticConfig test_config = config;
  test_config.split = Split::test;
  const auto a = make_synthetic(config), b = make_synthetic(config), test = make_synthetic(test_config);
  const auto read = [](const Source& source, int64_t i) {
    std::pair<Bytes, int32_t> sample{Bytes(128), 0};
    const std::span<std::byte> spans[] = {sample.first, std::as_writable_bytes(std::span(&sample.second, 1))};
    source.read(i, spans);
    return sample;
  };
  EXPECT_EQ(read(*a, 17), read(*b, 17));
  EXPECT_NE(read(*a, 17).first, read(*a, 18).first);
  EXPECT_NE(read(*a, 17).first, read(*test, 17).first);
  // The nearest class mean of the train split classifies the test split.
  std::vector<std::vector<double>> mean(3, std::vector<double>(128));
  std::vector<int> count(3);
  for (int64_t i = 0; i < 300; ++i) {
    const auto [image, label] = read(*a, i);
    ASSERT_TRUE(label >= 0 && label < 3);
    ++count[static_cast<size_t>(label)];
    for (size_t p = 0; p < 128; ++p) mean[static_cast<size_t>(label)][p] += std::to_integer<int>(image[p]);
  }
  int right = 0;
  for (int64_t i = 0; i < 300; ++i) {
    const auto [image, label] = read(*test, i);
    int best = -1;
    double best_distance = 1e30;
    for (size_t k = 0; k < 3; ++k) {
      double distance = 0;
      for (size_t p = 0; p < 128; ++p) {
        const double d = mean[k][p] / count[k] - std::to_integer<int>(image[p]);
        distance += d * d;
      }
      if (distance < best_distance) best = static_cast<int>(k), best_distance = distance;
    }
    right += best == label;
  }
  EXPECT_GT(right, 290);
  EXPECT_THROW(make_synthetic({.shape = {8, 8}, .classes = 3, .count = 3, .seed = 0, .split = Split::train}),
               UserError);
  EXPECT_THROW(make_synthetic({.shape = {8, 8, 1}, .classes = 0, .count = 3, .seed = 0, .split = Split::train}),
               UserError);
  EXPECT_THROW(make_synthetic({.shape = {8, 8, 1}, .classes = 2, .count = 0, .seed = 0, .split = Split::train}),
               UserError);
  EXPECT_THROW(make_synthetic({.shape = {65536, 65536, 3}, .classes = 9, .count = 1, .seed = 0, .split = Split::train}),
               UserError);
}

TEST(TextSource, WindowsAndTargets) {
  const auto source = make_text("abcdefghij", 3, 256, "t");
  EXPECT_EQ(source->size(), 3);  // 10 bytes: windows from 0, 3, 6; each needs one byte more
  int32_t tokens[3], targets[3];
  const std::span<std::byte> spans[] = {std::as_writable_bytes(std::span(tokens)),
                                        std::as_writable_bytes(std::span(targets))};
  source->read(2, spans);
  EXPECT_EQ(tokens[0], 'g');
  EXPECT_EQ(targets[0], 'h');
  EXPECT_EQ(targets[2], 'j');
  expect_misfit([] { make_text("abc", 3, 256, "t"); }, "data.sequence", {"at most 2 tokens", "got 3"});
  expect_misfit(
      [] {
        make_text(
            "ab\xff"
            "defgh",
            3, 128, "t");
      },
      "model.vocab", {"more than 255", "byte at 2", "got 128"});
  expect_error([] { make_text("abcdefgh", 3, 300, "t"); }, Exit::bad_data, {"model.vocab"});
}

TEST_F(TextFile, SplitsTheFile) {
  const std::string text(1000, 'x');
  const auto* p = reinterpret_cast<const std::byte*>(text.data());
  const std::string path = write("a.txt", Bytes(p, p + text.size()));
  EXPECT_EQ(load_text(path, Split::train, 10, 256)->size(), 89);
  EXPECT_EQ(load_text(path, Split::test, 10, 256)->size(), 9);
  expect_error([&] { load_text(path + "x", Split::test, 10, 256); }, Exit::missing_input, {"data.path"});
  const std::string empty = write("empty.txt", {});
  expect_error([&] { load_text(empty, Split::train, 10, 256); }, Exit::bad_data, {"empty.txt: empty file"});
  expect_error([&] { describe_text_file(empty, Split::train, 10, 256); }, Exit::bad_data, {"empty.txt: empty file"});
}

TEST_F(TextFile, IsDescribedByItsSize) {
  const std::string text(1234, 'x');
  const auto* p = reinterpret_cast<const std::byte*>(text.data());
  const std::string path = write("a.txt", Bytes(p, p + text.size()));
  for (const Split split : {Split::train, Split::test}) {
    expect_info(describe_text_file(path, split, 10, 256), *load_text(path, split, 10, 256));
    EXPECT_EQ(synthetic_text_bytes(5000, 3, split), static_cast<int64_t>(synthetic_text(5000, 3, split).size()));
  }
  expect_misfit([&] { describe_text_file(path, Split::test, 200, 256); }, "data.sequence", {"a.txt"});
  expect_error([&] { describe_text_file(path + "x", Split::test, 10, 256); }, Exit::missing_input, {"data.path"});
}

TEST_F(Idx, IsDescribedByItsHeader) {
  // Noise does not compress: the start of the file is not all of it.
  Bytes noise = idx_bytes(0x803, {500, 28, 28}, 0);
  uint32_t state = 1;
  for (int i = 0; i < 500 * 784; ++i)
    noise.push_back(static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24));
  const Bytes labels = idx_bytes(0x801, {500}, 500, 10);
  const auto folder = [&](const std::string& name, const Bytes& images, const char* suffix) {
    std::filesystem::create_directories(path_ / name);
    write(name + "/train-images-idx3-ubyte" + suffix, images);
    write(name + "/train-labels-idx1-ubyte" + suffix, *suffix ? gzip(labels) : labels);
    return (path_ / name).string();
  };
  const std::string plain = folder("plain", noise, ""), packed = folder("packed", gzip(noise), ".gz");
  for (const std::string& path : {plain, packed})
    expect_info(describe_idx_folder(path, Split::train, 10), *load_idx_folder(path, Split::train, 10));
  // A plan need not notice damage far behind the header; loading does.
  Bytes damaged = gzip(noise);
  ASSERT_GT(damaged.size(), 300000u);
  damaged[damaged.size() - 5000] ^= std::byte{0xff};
  const std::string broken = folder("broken", damaged, ".gz");
  EXPECT_EQ(describe_idx_folder(broken, Split::train, 10).size, 500);
  expect_error([&] { load_idx_folder(broken, Split::train, 10); }, Exit::bad_data, {"train-images"});
  Bytes shorter = noise;
  shorter.pop_back();
  const std::string cut = folder("cut", shorter, "");
  expect_error([&] { describe_idx_folder(cut, Split::train, 10); }, Exit::bad_data, {"truncated"});
  expect_error([&] { describe_idx_folder(path_.string(), Split::train, 10); }, Exit::missing_input, {"data.path"});
}

TEST(TextSource, SyntheticTextIsAscii) {
  const std::string a = synthetic_text(5000, 1, Split::train);
  EXPECT_GE(a.size(), 5000u);
  EXPECT_EQ(a, synthetic_text(5000, 1, Split::train));
  EXPECT_NE(a, synthetic_text(5000, 1, Split::test));
  EXPECT_NE(a, synthetic_text(5000, 2, Split::train));
  for (char c : a) EXPECT_TRUE(c == '\n' || (c >= ' ' && c < 127));
}

TEST(Subset, TakesARange) {
  const std::shared_ptr<const Source> whole = make_text("abcdefghijklm", 3, 256, "t");
  const auto part = subset(whole, 1, 2);
  EXPECT_EQ(part->size(), 2);
  int32_t tokens[3], targets[3];
  const std::span<std::byte> spans[] = {std::as_writable_bytes(std::span(tokens)),
                                        std::as_writable_bytes(std::span(targets))};
  part->read(0, spans);
  EXPECT_EQ(tokens[0], 'd');
  EXPECT_THROW(subset(whole, 3, 2), UserError);
  EXPECT_THROW(subset(whole, 0, 0), UserError);
  EXPECT_THROW(subset(whole, -1, 2), UserError);
  EXPECT_THROW(subset(whole, INT64_MAX, INT64_MAX), UserError);
}

}  // namespace
}  // namespace lathe::data
