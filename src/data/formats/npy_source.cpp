// A source of samples from arrays: a folder of .npy files, or an .npz archive.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <span>
#include <string_view>

#include "base/checked.h"
#include "base/error.h"
#include "data/file.h"
#include "data/formats/npy.h"
#include "data/formats/zip.h"
#include "data/moments.h"

namespace lathe::data {
namespace {

constexpr int64_t kMaxNpyBytes = int64_t{64} << 30;
constexpr int64_t kTestSampleEvery = 5;
constexpr const char* kNpyHint = "set data.path to an .npz file, or to a folder with x_train.npy, y_train.npy, ...";

struct Named {
  NpyArray array;
  std::string name;  // for errors
};

// The arrays of a folder or an archive.
class Arrays {
 public:
  explicit Arrays(const std::string& path) : path_(path), folder_(kind_of_other(path) != nullptr) {
    if (folder_) return;
    archive_ = read_file(path, kMaxNpyBytes, kNpyHint);
    for (ZipMember& m : zip_members(archive_, path)) members_.emplace(m.name, std::move(m));
  }

  bool has(const std::string& name) const {
    return folder_ ? is_regular_file(fmt::format("{}/{}.npy", path_, name)) : members_.count(name + ".npy") > 0;
  }
  Named get(const std::string& name) const {
    if (folder_) {
      const std::string file = fmt::format("{}/{}.npy", path_, name);
      return {parse_npy(read_file(file, kMaxNpyBytes, kNpyHint), file), file};
    }
    const auto found = members_.find(name + ".npy");
    std::string place = fmt::format("{}: {}", path_, name);
    LATHE_USER_CHECK(found != members_.end(), "{}: no such array in the file; {}", place, kNpyHint);
    return {parse_npy(unzip(archive_, found->second, place), place), place};
  }

 private:
  std::string path_;
  bool folder_;
  std::vector<std::byte> archive_;
  std::map<std::string, ZipMember> members_;
};

// Which samples of the arrays a split has: all, or every fifth or the others.
struct Choice {
  int64_t all = 0, count = 0;
  bool every = false, test = false;
  int64_t operator()(int64_t i) const {
    if (!every) return i;
    return test ? i * kTestSampleEvery + kTestSampleEvery - 1 : i + i / (kTestSampleEvery - 1);
  }
};

Choice choose(int64_t all, bool every, Split split) {
  const int64_t tests = all / kTestSampleEvery;
  const bool test = split == Split::test;
  return {all, !every ? all : test ? tests : all - tests, every, test};
}

// Of the columns of x [N, ...], `width` in all, over the chosen samples.
NpyScaling moments(const NpyArray& a, const Choice& choice, int64_t width) {
  std::vector<Moments> of(static_cast<size_t>(width));
  for (int64_t i = 0; i < choice.count; ++i)
    for (int64_t k = 0; k < width; ++k) of[static_cast<size_t>(k)].add(a.at(choice(i) * width + k));
  NpyScaling m;
  for (const Moments& column : of) {
    m.mean.push_back(column.mean());
    m.scale.push_back(column.deviation());
  }
  return m;
}

bool is_image(const NpyArray& a) { return a.kind == 'u' && a.item == 1 && a.shape.ndim() >= 3; }

void check_samples(const Named& x) {
  LATHE_USER_CHECK(x.array.shape.ndim() >= 2 && x.array.shape.numel() > 0,
                   "{}: expected samples along the first of at least 2 dimensions, got {}", x.name,
                   to_string(x.array.shape));
}

// Of the training samples `x`; `every`: of whose samples every fifth is a test sample.
NpyScaling scaling_of(const NpyConfig& c, const Named& x, bool every) {
  if (!c.standardize || c.vocab > 0 || is_image(x.array)) return {};
  check_samples(x);
  const int64_t all = x.array.shape[0], width = x.array.shape.numel() / all;
  return moments(x.array, choose(all, every, Split::train), width);
}

class NpySource final : public Source {
 public:
  NpySource(const NpyConfig& c, Split split) {
    const Arrays arrays(c.path);
    const bool every = !arrays.has("x_train");
    const auto part = [&](const char* what, Split s) {
      return every ? std::string(what) : fmt::format("{}_{}", what, to_string(s));
    };
    {
      const Named x = arrays.get(part("x", split));
      check_samples(x);
      choice_ = choose(x.array.shape[0], every, split);
      LATHE_USER_CHECK(choice_.count > 0, "{}: no {} samples in {}", x.name, to_string(split),
                       to_string(x.array.shape));
      description_ = fmt::format("{} {} samples of {}", choice_.count, to_string(split), x.name);
      // Statistics are those of training, whatever the split is.
      const bool scaled = c.standardize && c.vocab == 0 && !is_image(x.array);
      scaling_ = scaled && split == Split::test && !every ? scaling_of(c, arrays.get(part("x", Split::train)), every)
                                                          : scaling_of(c, x, every);
      read_samples(c, x, scaling_);
    }
    if (c.label == LabelKind::image) {
      classes_ = 1;
      fields_[1] = {"label", {DType::i32, {}}};
      y_.assign(static_cast<size_t>(choice_.count) * sizeof(int32_t), std::byte{0});
      return;
    }
    const Named y = arrays.get(part("y", split));
    LATHE_USER_CHECK(y.array.shape.ndim() >= 1 && y.array.shape[0] == choice_.all,
                     "{}: expected {} along the first dimension, one for each sample, got {}", y.name, choice_.all,
                     to_string(y.array.shape));
    if (c.label == LabelKind::value) {
      std::optional<Named> train;
      if (split == Split::test && !every) train = arrays.get(part("y", Split::train));
      read_values(y, train ? train->array : y.array, every);
    } else {
      read_classes(c, y);
    }
  }

  // Samples alone, of another file, with the statistics of training.
  NpySource(const NpyConfig& c, const NpyScaling& scaling, const Named& x) {
    check_samples(x);
    choice_ = choose(x.array.shape[0], false, Split::test);
    read_samples(c, x, scaling);
  }
  const NpyScaling& scaling() const { return scaling_; }
  Samples samples(const std::string& path) && {
    Samples out{fields_[0].type, std::move(x_), {}};
    for (int64_t i = 0; i < choice_.count; ++i) out.names.push_back(fmt::format("{}:{}", path, i));
    return out;
  }

  int64_t size() const override { return choice_.count; }
  std::span<const Field> fields() const override { return fields_; }
  void read(int64_t index, SampleSpans fields) const override {
    LATHE_CHECK(index >= 0 && index < size(), "sample {} of {}", index, size());
    const auto i = static_cast<size_t>(index);
    std::memcpy(fields[0].data(), x_.data() + i * fields[0].size(), fields[0].size());
    std::memcpy(fields[1].data(), y_.data() + i * fields[1].size(), fields[1].size());
  }
  int64_t classes() const override { return classes_; }
  std::string description() const override { return description_; }
  int64_t resident_bytes() const override { return static_cast<int64_t>(x_.size() + y_.size()); }
  LabelUnits label_units() const override { return units_; }
  std::optional<int32_t> label(int64_t index) const override {
    if (fields_[1].type != TensorType{DType::i32, {}}) return {};
    int32_t found = 0;
    std::memcpy(&found, y_.data() + static_cast<size_t>(index) * sizeof found, sizeof found);
    return found;
  }

 private:
  template <class T, class F>
  static void fill(std::vector<std::byte>& out, const Choice& choice, int64_t width, F&& value) {
    out.resize(static_cast<size_t>(checked_mul(choice.count * static_cast<int64_t>(sizeof(T)), width, "npy")));
    std::byte* to = out.data();
    for (int64_t i = 0; i < choice.count; ++i)
      for (int64_t k = 0; k < width; ++k, to += sizeof(T)) {
        const T v = value(choice(i) * width + k, k);
        std::memcpy(to, &v, sizeof v);
      }
  }

  void read_samples(const NpyConfig& c, const Named& x, const NpyScaling& scaling) {
    const Shape& s = x.array.shape;
    const int64_t width = s.numel() / s[0];
    if (c.vocab > 0) {
      LATHE_USER_CHECK(x.array.whole() && s.ndim() == 2, "{}: expected tokens, whole numbers [samples, T], got {}",
                       x.name, to_string(s));
      fields_[0] = {"tokens", {DType::i32, {s[1]}}};
      fill<int32_t>(x_, choice_, width, [&](int64_t i, int64_t) {
        const double v = x.array.at(i);
        LATHE_USER_CHECK(v >= 0, "{}: expected tokens of at least 0, got {} in sample {}", x.name, v, i / width);
        if (v >= static_cast<double>(c.vocab))
          throw Misfit({"model.vocab"},
                       fmt::format("expected more than {}, a token in {}, got {}", v, x.name, c.vocab));
        return static_cast<int32_t>(v);
      });
      return;
    }
    LATHE_USER_CHECK(s.ndim() <= 4, "{}: expected at most 4 dimensions, got {}", x.name, to_string(s));
    if (is_image(x.array)) {
      fields_[0] = {"image", {DType::u8, {s[1], s[2], s.ndim() == 4 ? s[3] : 1}}};
      fill<uint8_t>(x_, choice_, width, [&](int64_t i, int64_t) { return static_cast<uint8_t>(x.array.at(i)); });
      return;
    }
    if (s.ndim() == 2 && c.row > 0 && width % c.row != 0)
      throw Misfit({"data.row"},
                   fmt::format("expected a divisor of the {} numbers of a sample in {}, got {}", width, x.name, c.row));
    const int64_t row = c.row > 0 ? c.row : width;
    fields_[0] = {"features",
                  {DType::f32, s.ndim() == 2   ? Shape{width / row, row, 1}
                               : s.ndim() == 3 ? Shape{s[1], s[2], 1}
                                               : Shape{s[1], s[2], s[3]}}};
    check_finite(x);
    if (scaling.mean.empty()) {
      fill<float>(x_, choice_, width, [&](int64_t i, int64_t) { return static_cast<float>(x.array.at(i)); });
      return;
    }
    LATHE_USER_CHECK(static_cast<int64_t>(scaling.mean.size()) == width,
                     "{}: expected samples as for training, of {} numbers, got {}", x.name, scaling.mean.size(),
                     to_string(s));
    fill<float>(x_, choice_, width, [&](int64_t i, int64_t k) {
      const auto column = static_cast<size_t>(k);
      return finite(static_cast<float>((x.array.at(i) - scaling.mean[column]) / scaling.scale[column]), x.name, i);
    });
  }

  static float finite(float v, const std::string& name, int64_t i) {
    LATHE_USER_CHECK(std::isfinite(v), "{}: expected finite numbers, element {} is none", name, i);
    return v;
  }

  // Before statistics, which one such number spoils for all.
  static void check_finite(const Named& n) {
    for (int64_t i = 0; i < n.array.shape.numel(); ++i)
      LATHE_USER_CHECK(std::abs(n.array.at(i)) <= std::numeric_limits<float>::max(),
                       "{}: expected finite numbers of f32, element {} is {}", n.name, i, n.array.at(i));
  }

  void read_values(const Named& y, const NpyArray& train, bool every) {
    const Shape& s = y.array.shape;
    LATHE_USER_CHECK(s.ndim() <= 2 && s.numel() > 0, "{}: expected numbers [samples] or [samples, k], got {}", y.name,
                     to_string(s));
    classes_ = s.ndim() == 2 ? s[1] : 1;
    LATHE_USER_CHECK(train.shape.ndim() >= 1 && train.shape.numel() == train.shape[0] * classes_,
                     "{}: expected {} numbers each, as for training, got {}", y.name,
                     train.shape.numel() / std::max<int64_t>(1, train.shape[0]), classes_);
    check_finite(y);
    NpyScaling m = moments(train, choose(train.shape[0], every, Split::train), classes_);
    units_ = units_of(std::move(m.mean), std::move(m.scale));
    fields_[1] = {"target", {DType::f32, {classes_}}};
    fill<float>(y_, choice_, classes_, [&](int64_t i, int64_t k) {
      const auto column = static_cast<size_t>(k);
      return finite(static_cast<float>((y.array.at(i) - units_.mean_of(column)) / units_.scale_of(column)), y.name, i);
    });
  }

  void read_classes(const NpyConfig& c, const Named& y) {
    const Shape& s = y.array.shape;
    const bool mask = c.label == LabelKind::mask;
    const Shape& sample = fields_[0].type.shape;
    const bool fits =
        mask ? s.ndim() == 3 && sample.ndim() == 3 && s[1] == sample[0] && s[2] == sample[1] : s.numel() == s[0];
    LATHE_USER_CHECK(
        y.array.whole() && fits, "{}: expected whole numbers, {}, got {} {}", y.name,
        mask ? "one for each pixel of an image" : "one for each sample; data.target = \"value\" is for others",
        y.array.whole() ? "whole numbers" : "numbers", to_string(s));
    double largest = 0;
    for (int64_t i = 0; i < s.numel(); ++i) {
      const double v = y.array.at(i);
      LATHE_USER_CHECK(v >= 0 && v < (mask ? 256 : 2147483647), "{}: expected classes from 0 on, element {} is {}",
                       y.name, i, v);
      largest = std::max(largest, v);
    }
    classes_ = c.classes > 0 ? c.classes : static_cast<int64_t>(largest) + 1;
    if (static_cast<int64_t>(largest) >= classes_)
      throw Misfit({"data.classes"},
                   fmt::format("expected more than {}, a class in {}, got {}", largest, y.name, classes_));
    if (mask) {
      fields_[1] = {"mask", {DType::u8, {s[1], s[2]}}};
      fill<uint8_t>(y_, choice_, s[1] * s[2], [&](int64_t i, int64_t) { return static_cast<uint8_t>(y.array.at(i)); });
    } else {
      fields_[1] = {"label", {DType::i32, {}}};
      fill<int32_t>(y_, choice_, 1, [&](int64_t i, int64_t) { return static_cast<int32_t>(y.array.at(i)); });
    }
  }

  Choice choice_;
  NpyScaling scaling_;
  int64_t classes_ = 1;
  LabelUnits units_;
  std::vector<std::byte> x_, y_;
  Field fields_[2];
  std::string description_;
};

}  // namespace

std::unique_ptr<Source> load_npy(const NpyConfig& c, Split split, NpyScaling* learned) {
  auto source = std::make_unique<NpySource>(c, split);
  if (learned) *learned = source->scaling();
  return source;
}

SourceInfo describe_npy(const NpyConfig& c, Split split) { return info_of(*load_npy(c, split)); }

bool is_npy(std::span<const std::byte> start) {
  const auto begins = [&](std::string_view magic) {
    return start.size() >= magic.size() && std::memcmp(start.data(), magic.data(), magic.size()) == 0;
  };
  return begins("\x93NUMPY") || begins("PK\x03\x04");
}

bool has_npy_test(const std::string& path) {
  const Arrays arrays(path);
  return !arrays.has("x_train") || arrays.has("x_test");
}

NpyScaling learn_npy(const NpyConfig& c) {
  const Arrays arrays(c.path);
  const bool every = !arrays.has("x_train");
  return scaling_of(c, arrays.get(every ? "x" : "x_train"), every);
}

Samples read_npy_samples(const NpyConfig& c, const NpyScaling& scaling, const std::string& path) {
  const bool array = read_start(path, 1).bytes == std::vector{std::byte{0x93}};
  if (array) return NpySource(c, scaling, {parse_npy(read_file(path, kMaxNpyBytes), path), path}).samples(path);
  const Arrays archive(path);
  return NpySource(c, scaling, archive.get(archive.has("x") ? "x" : "x_test")).samples(path);
}

}  // namespace lathe::data
