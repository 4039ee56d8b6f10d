#include "train/dataset.h"

#include <algorithm>

#include "data/idx.h"
#include "data/synthetic.h"
#include "data/text.h"

namespace lathe {
namespace {

using data::Source;
using data::Split;

constexpr int64_t kFashionTrain = 60000, kFashionTest = 10000;
constexpr int64_t kSyntheticTrain = 4096, kSyntheticTest = 1024;
constexpr int64_t kTextBytes[] = {1 << 20, 1 << 17};  // generated text: train, test

int64_t wanted(const Recipe& r, Split split) {
  return split == Split::train ? r.data.train_samples : r.data.test_samples;
}

int64_t sequence(const Recipe& r) { return r.data.sequence > 0 ? r.data.sequence : r.model.sequence; }

std::shared_ptr<const Source> open(const Recipe& r, Split split) {
  const DataRecipe& d = r.data;
  const int64_t n = wanted(r, split);
  if (d.source == "synthetic") {
    data::SyntheticConfig c;
    c.shape = Shape(d.shape);
    c.classes = d.classes;
    c.count = n > 0 ? n : split == Split::train ? kSyntheticTrain : kSyntheticTest;
    c.seed = static_cast<uint64_t>(r.seed);
    c.split = split;
    return data::make_synthetic(c);
  }
  if (d.source == "text") {
    if (!d.path.empty()) return data::load_text(d.path, split, sequence(r), r.model.vocab);
    // Generated text is the same for every seed: a run's seed moves weights and order, not the task.
    return data::make_text(data::synthetic_text(kTextBytes[split == Split::train ? 0 : 1], 0, split), sequence(r),
                           r.model.vocab, "generated text");
  }
  if (d.source == "idx") return data::load_idx_folder(d.path, split, d.classes);
  return data::load_fashion_mnist(d.path.empty() ? data::kFashionMnistFolder : d.path, split);
}

std::shared_ptr<const Source> first(std::shared_ptr<const Source> s, int64_t n) {
  if (n <= 0 || n == s->size()) return s;
  return data::subset(std::move(s), 0, n);
}

int64_t held_out(const Recipe& r, int64_t train) {
  return static_cast<int64_t>(r.data.validation * static_cast<double>(train));
}

}  // namespace

DataSpec Dataset::spec() const { return {train->fields()[0].type, train->classes(), train->size(), eval->size()}; }

Dataset open_dataset(const Recipe& r) {
  Dataset out;
  out.train = first(open(r, Split::train), wanted(r, Split::train));
  if (const int64_t held = held_out(r, out.train->size()); held > 0) {
    out.eval = data::subset(out.train, out.train->size() - held, held);
    out.train = data::subset(out.train, 0, out.train->size() - held);
  } else {
    out.eval = first(open(r, Split::test), wanted(r, Split::test));
  }
  return out;
}

DataSpec describe_data(const Recipe& r) {
  if (r.data.source == "fashion_mnist" && r.data.path.empty()) {
    const auto count = [&](int64_t all, Split s) { return wanted(r, s) > 0 ? std::min(all, wanted(r, s)) : all; };
    DataSpec spec{{DType::u8, {28, 28, 1}}, 10, count(kFashionTrain, Split::train), count(kFashionTest, Split::test)};
    if (const int64_t held = held_out(r, spec.train); held > 0) {
      spec.train -= held;
      spec.eval = held;
    }
    return spec;
  }
  return open_dataset(r).spec();
}

}  // namespace lathe
