#include "data/formats/cifar.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

namespace lathe::data {
namespace {

// Pixel p of channel c of sample i.
uint8_t pixel(int64_t i, int64_t c, int64_t p) { return static_cast<uint8_t>(7 * i + 31 * c + p); }

std::string record(const std::vector<int>& labels, int64_t i) {
  std::string out;
  for (const int label : labels) out += static_cast<char>(label);
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t p = 0; p < 1024; ++p) out += static_cast<char>(pixel(i, c, p));
  return out;
}

// Without an error: "".
std::string message_of(const std::function<void()>& f, Exit exit = Exit::bad_data) {
  try {
    f();
  } catch (const UserError& e) {
    EXPECT_EQ(e.exit_code(), exit) << e.what();
    return e.what();
  }
  return "";
}

void expect_parts(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(message.find(part), std::string::npos) << part << " in " << message;
}

class Cifar : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("lathe_cifar_test_" + std::to_string(::getpid()) +
                                                        testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
  }
  std::string folder() const { return folder_.string(); }
  void ten() const {  // two files of training samples
    write("data_batch_1.bin", record({3}, 0) + record({9}, 1));
    write("data_batch_2.bin", record({0}, 2));
    write("test_batch.bin", record({5}, 3));
  }
  void hundred() const {
    write("train.bin", record({19, 99}, 0) + record({0, 7}, 1));
    write("test.bin", record({4, 30}, 2));
  }

  std::filesystem::path folder_;
};

void expect_samples(const Source& source, int64_t first, const std::vector<int32_t>& labels) {
  ASSERT_EQ(source.size(), static_cast<int64_t>(labels.size()));
  for (int64_t i = 0; i < source.size(); ++i) {
    std::vector<std::byte> image(3072), label(4);
    const std::span<std::byte> spans[] = {image, label};
    source.read(i, spans);
    int32_t value = -1;
    std::memcpy(&value, label.data(), sizeof value);
    EXPECT_EQ(value, labels[static_cast<size_t>(i)]);
    EXPECT_EQ(source.label(i), value);
    for (int64_t p = 0; p < 1024; ++p)
      for (int64_t c = 0; c < 3; ++c)
        ASSERT_EQ(std::to_integer<uint8_t>(image[static_cast<size_t>(3 * p + c)]), pixel(first + i, c, p));
  }
}

void expect_described(const SourceInfo& info, const Source& source) {
  const SourceInfo truth = info_of(source);
  EXPECT_EQ(info.sample, truth.sample);
  EXPECT_EQ(info.label, truth.label);
  EXPECT_EQ(info.classes, truth.classes);
  EXPECT_EQ(info.size, truth.size);
  EXPECT_EQ(info.resident_bytes, truth.resident_bytes);
}

TEST_F(Cifar, ReadsTenClasses) {
  ten();
  const auto train = load_cifar(folder(), Split::train, 10), test = load_cifar(folder(), Split::test, 10);
  expect_samples(*train, 0, {3, 9, 0});
  expect_samples(*test, 3, {5});
  expect_described(describe_cifar(folder(), Split::train, 10), *train);
  expect_described(describe_cifar(folder(), Split::test, 0), *test);
  EXPECT_TRUE(has_cifar_test(folder()));
  EXPECT_EQ(train->fields()[0].type, (TensorType{DType::u8, {32, 32, 3}}));
}

TEST_F(Cifar, ReadsHundredClassesAndTheirSuperclasses) {
  hundred();
  const auto fine = load_cifar(folder(), Split::train, 100), coarse = load_cifar(folder(), Split::train, 20);
  expect_samples(*fine, 0, {99, 7});
  expect_samples(*coarse, 0, {19, 0});
  expect_samples(*load_cifar(folder(), Split::test, 0), 2, {30});
  expect_described(describe_cifar(folder(), Split::train, 20), *coarse);
}

TEST_F(Cifar, ClassesMustFitTheFiles) {
  ten();
  for (const int64_t classes : {20, 100})
    expect_parts(message_of([&] { load_cifar(folder(), Split::train, classes); }, Exit::bad_recipe),
                 {"expected 10 for CIFAR-10", folder(), std::to_string(classes)});
  for (const char* name : {"data_batch_1.bin", "data_batch_2.bin"}) std::filesystem::remove(folder_ / name);
  hundred();
  try {
    describe_cifar(folder(), Split::train, 10);
    FAIL();
  } catch (const Misfit& e) {
    EXPECT_EQ(e.keys(), std::vector<std::string>{"data.classes"});
    expect_parts(e.what(), {"expected 100, or 20", "got 10"});
  }
}

TEST_F(Cifar, RefusesBadFiles) {
  const auto refused = [&](const std::string& content, const std::vector<std::string>& parts) {
    write("data_batch_1.bin", content);
    expect_parts(message_of([&] { load_cifar(folder(), Split::train, 10); }), parts);
  };
  const std::string good = record({3}, 0);
  refused("", {"data_batch_1.bin", "records of 3073 bytes", "a file of 0 bytes"});
  refused(good.substr(1), {"records of 3073 bytes", "3072 bytes", "fetch it again"});
  refused(good + "x", {"a file of 3074 bytes"});
  refused(good + record({10}, 1), {"data_batch_1.bin: record 1: expected a label below 10, got 10"});
  refused(record({255}, 1), {"got 255"});
  EXPECT_EQ(message_of([&] { describe_cifar(folder(), Split::train, 10); }), "");  // labels are not read
  // A gap, a file that is no file, none at all.
  write("data_batch_1.bin", good);
  write("data_batch_3.bin", good);
  expect_parts(message_of([&] { load_cifar(folder(), Split::train, 10); }),
               {"data_batch_3.bin: expected data_batch_2.bin before it"});
  std::filesystem::remove(folder_ / "data_batch_1.bin");
  std::filesystem::create_directory(folder_ / "data_batch_1.bin");
  std::filesystem::remove(folder_ / "data_batch_3.bin");
  expect_parts(message_of([&] { load_cifar(folder(), Split::train, 10); }), {"data_batch_1.bin", "directory"});
  EXPECT_FALSE(has_cifar_test(folder()));
  expect_parts(message_of([&] { load_cifar(folder(), Split::test, 10); }, Exit::missing_input),
               {"test_batch.bin", "set data.path"});
  std::filesystem::remove(folder_ / "data_batch_1.bin");
  write("train.bin", record({20, 5}, 0));
  expect_parts(message_of([&] { load_cifar(folder(), Split::train, 20); }), {"below 20, got 20"});
  EXPECT_EQ(message_of([&] { load_cifar(folder(), Split::train, 100); }), "");
}

TEST_F(Cifar, NamesOfClasses) {
  ten();
  EXPECT_TRUE(cifar_class_names(folder(), 10).empty());
  write("batches.meta.txt", "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\r\ntruck\n\n");
  const auto names = cifar_class_names(folder(), 10);
  ASSERT_EQ(names.size(), 10u);
  EXPECT_EQ(names[8], "ship");
  write("batches.meta.txt", "one\ntwo\n");
  EXPECT_TRUE(cifar_class_names(folder(), 10).empty());
}

}  // namespace
}  // namespace lathe::data
