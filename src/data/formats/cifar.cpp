#include "data/formats/cifar.h"

#include <cstring>
#include <sstream>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "data/file.h"

namespace lathe::data {
namespace {

constexpr int64_t kMaxCifarBytes = int64_t{64} << 30;
constexpr int64_t kMaxNamesBytes = 1 << 16;
constexpr int kMaxBatches = 100;  // data_batch_N.bin; CIFAR-10 has 5
constexpr int64_t kPixels = int64_t{32} * 32;
constexpr const char* kHint =
    "set data.path to the folder of the binary version, with data_batch_1.bin (CIFAR-10) or train.bin (CIFAR-100)";

Shape image_shape() { return {32, 32, 3}; }

bool is_cifar100(const std::string& folder) {
  return is_regular_file(folder + "/train.bin") && !is_regular_file(folder + "/data_batch_1.bin");
}

CifarRecord record_of(const std::string& folder, int64_t classes) {
  if (!is_cifar100(folder)) {
    if (classes != 0 && classes != kCifar10.classes)
      throw Misfit({"data.classes"}, fmt::format("expected 10 for CIFAR-10 in {}, got {}", folder, classes));
    return kCifar10;
  }
  if (classes == 0 || classes == kCifar100.classes) return kCifar100;
  if (classes == kCifar100Coarse.classes) return kCifar100Coarse;
  throw Misfit({"data.classes"},
               fmt::format("expected 100, or 20 for superclasses, for CIFAR-100 in {}, got {}", folder, classes));
}

// The files of a split, one of them at least: where there is none, the first by name, for the error of reading it.
std::vector<std::string> files_of(const std::string& folder, Split split) {
  if (is_cifar100(folder)) return {folder + (split == Split::train ? "/train.bin" : "/test.bin")};
  if (split != Split::train) return {folder + "/test_batch.bin"};
  std::vector<std::string> files{folder + "/data_batch_1.bin"};
  for (int i = 2; i <= kMaxBatches; ++i) {
    std::string path = fmt::format("{}/data_batch_{}.bin", folder, i);
    if (!is_regular_file(path)) continue;
    const auto next = static_cast<int>(files.size()) + 1;
    LATHE_USER_CHECK(i == next, "{}: expected data_batch_{}.bin before it, got no such file; unpack the archive again",
                     path, next);
    files.push_back(std::move(path));
  }
  return files;
}

int64_t count_records(int64_t bytes, const CifarRecord& record, const std::string& name) {
  LATHE_USER_CHECK(bytes > 0 && bytes % record.bytes() == 0,
                   "{}: expected records of {} bytes ({} of labels, 3072 of pixels), got a file of {} bytes; fetch it "
                   "again, or check that it is the binary version",
                   name, record.bytes(), record.labels, bytes);
  return bytes / record.bytes();
}

// The sum of the files' sizes, each whole records.
int64_t total_bytes(const std::vector<std::string>& files, const CifarRecord& record) {
  int64_t total = 0;
  for (const std::string& path : files) {
    const int64_t bytes = read_start(path, 1, kHint).file_bytes;
    count_records(bytes, record, path);
    total = checked_add(total, bytes, path + ": CIFAR files");
    LATHE_USER_CHECK(total <= kMaxCifarBytes, "{}: expected at most {} bytes in all files, got {}", path,
                     kMaxCifarBytes, total);
  }
  return total;
}

class CifarSource final : public Source {
 public:
  CifarSource(std::vector<std::byte> records, const CifarRecord& record, std::string name)
      : records_(std::move(records)), record_(record), name_(std::move(name)) {
    fields_[0] = {"image", {DType::u8, image_shape()}};
    fields_[1] = {"label", {DType::i32, {}}};
  }

  int64_t size() const override { return static_cast<int64_t>(records_.size()) / record_.bytes(); }
  std::span<const Field> fields() const override { return fields_; }
  void read(int64_t index, SampleSpans fields) const override {
    LATHE_CHECK(index >= 0 && index < size(), "sample {} of {}", index, size());
    const std::byte* planes = at(index) + record_.labels;
    std::byte* image = fields[0].data();
    for (int64_t p = 0; p < kPixels; ++p)
      for (int64_t c = 0; c < 3; ++c) image[3 * p + c] = planes[c * kPixels + p];
    const int32_t value = label_at(index);
    std::memcpy(fields[1].data(), &value, sizeof value);
  }
  int64_t classes() const override { return record_.classes; }
  std::string description() const override {
    return fmt::format("{} images {} in {} classes from {}", size(), to_string(image_shape()), classes(), name_);
  }
  int64_t resident_bytes() const override { return static_cast<int64_t>(records_.size()); }
  std::optional<int32_t> label(int64_t index) const override { return label_at(index); }

 private:
  const std::byte* at(int64_t index) const { return records_.data() + index * record_.bytes(); }
  int32_t label_at(int64_t index) const { return std::to_integer<int32_t>(at(index)[record_.label]); }

  std::vector<std::byte> records_;
  CifarRecord record_;
  std::string name_;
  Field fields_[2];
};

}  // namespace

int64_t check_cifar(std::span<const std::byte> content, const CifarRecord& record, const std::string& name) {
  const int64_t n = count_records(static_cast<int64_t>(content.size()), record, name);
  for (int64_t i = 0; i < n; ++i) {
    const auto label = std::to_integer<int64_t>(content[static_cast<size_t>(i * record.bytes() + record.label)]);
    LATHE_USER_CHECK(label < record.classes,
                     "{}: record {}: expected a label below {}, got {}; the file is damaged or of another data set",
                     name, i, record.classes, label);
  }
  return n;
}

std::unique_ptr<Source> load_cifar(const std::string& folder, Split split, int64_t classes) {
  const CifarRecord record = record_of(folder, classes);
  const std::vector<std::string> files = files_of(folder, split);
  std::vector<std::byte> records;
  records.reserve(static_cast<size_t>(total_bytes(files, record)));
  for (const std::string& path : files) {
    const std::vector<std::byte> content = read_file(path, kMaxCifarBytes, kHint);
    check_cifar(content, record, path);
    records.insert(records.end(), content.begin(), content.end());
  }
  return std::make_unique<CifarSource>(std::move(records), record, folder);
}

SourceInfo describe_cifar(const std::string& folder, Split split, int64_t classes) {
  const CifarRecord record = record_of(folder, classes);
  const int64_t bytes = total_bytes(files_of(folder, split), record);
  return {{DType::u8, image_shape()}, record.classes, bytes / record.bytes(), bytes};
}

bool has_cifar_test(const std::string& folder) { return is_regular_file(files_of(folder, Split::test)[0]); }

std::vector<std::string> cifar_class_names(const std::string& folder, int64_t classes) {
  const std::string path = folder + (!is_cifar100(folder)           ? "/batches.meta.txt"
                                     : classes == kCifar100.classes ? "/fine_label_names.txt"
                                                                    : "/coarse_label_names.txt");
  if (!is_regular_file(path)) return {};
  const std::vector<std::byte> content = read_file(path, kMaxNamesBytes);
  std::istringstream lines(std::string(reinterpret_cast<const char*>(content.data()), content.size()));
  std::vector<std::string> names;
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) names.push_back(std::move(line));
  }
  if (static_cast<int64_t>(names.size()) != classes) names.clear();
  return names;
}

}  // namespace lathe::data
