#include "workload/dataset.h"

#include <algorithm>

#include "data/file.h"
#include "data/formats/idx.h"
#include "data/formats/npy.h"
#include "data/formats/png.h"
#include "data/formats/pnm.h"
#include "data/hold_out.h"
#include "data/noise.h"
#include "recipe/recipe_errors.h"
#include "recipe/recipe_keys.h"
#include "recipe/sources/preparation.h"
#include "recipe/sources/source.h"
#include "workload/custom_data.h"

namespace lathe {
namespace {

using data::Source;
using data::Split;

// Of sources that know them without reading their samples.
std::vector<std::string> known_names(const Recipe& r) {
  const SourceRule& source = source_of(r);
  return label_kind_of(r) == data::LabelKind::class_index && source.class_names ? source.class_names(r)
                                                                                : std::vector<std::string>();
}

// The noise of test images is not that of training images.
std::shared_ptr<const Source> open(const Recipe& r, Split split, Preparation& learned) {
  learned.names = known_names(r);
  auto source = source_of(r).open(r, split, learned);
  if (label_kind_of(r) != data::LabelKind::image) return source;
  return data::with_noise(std::move(source), r.data.noise, split == Split::train ? 0 : 1);
}

data::SourceInfo describe(const Recipe& r, Split split) {
  const data::SourceInfo info = source_of(r).describe(r, split);
  return label_kind_of(r) == data::LabelKind::image ? data::describe_noise(info) : info;
}

// A Misfit becomes an error of the recipe, with its place.
template <class F>
auto located(const Recipe& r, F&& f) {
  try {
    return f();
  } catch (const data::Misfit& e) {
    throw_recipe_error(r, {e.keys().front(), e.keys().back()}, e.what());
  }
}

int64_t taken(const Recipe& r, Split split, int64_t all) {
  const int64_t n = wanted_samples(r, split);
  if (n > all)
    throw_recipe_error(
        r, {split == Split::train ? "data.train_samples" : "data.test_samples"},
        fmt::format("expected at most {}, the {} samples there are, got {}", all, data::to_string(split), n));
  return n > 0 ? n : all;
}

// With a validation set a run needs no test data: a folder or archive may be without.
bool has_test(const Recipe& r) {
  if (r.data.validation == 0) return true;  // and what is missing is an error
  const SourceRule& source = source_of(r);
  return !source.has_test || source.has_test(r);
}

int64_t held_out(const Recipe& r, int64_t train) {
  const int64_t held = data::held_out_count(r.data.validation, train);
  if (r.data.validation > 0 && held == 0)
    throw_recipe_error(
        r, {"data.validation"},
        fmt::format("expected a part that is at least one of {} samples, got {}", train, r.data.validation));
  return held;
}

std::shared_ptr<const Source> first(std::shared_ptr<const Source> s, int64_t n) {
  if (n == s->size()) return s;
  return data::subset(std::move(s), 0, n);
}

}  // namespace

Dataset open_dataset(const Recipe& r) {
  Dataset out;
  out.spec = describe_data(r);  // errors of the recipe come before anything is read
  located(r, [&] {
    Preparation learned, again;
    out.train = open(r, Split::train, learned);
    out.preparation = std::make_shared<Preparation>(std::move(learned));
    out.resident_bytes = out.train->resident_bytes();
    out.train = first(out.train, taken(r, Split::train, out.train->size()));
    if (out.spec.test > 0) {
      out.test = open(r, Split::test, again);
      out.resident_bytes += out.test->resident_bytes();
      out.test = first(out.test, taken(r, Split::test, out.test->size()));
    }
    if (const int64_t held = held_out(r, out.train->size()); held > 0) {
      out.resident_bytes += data::hold_out_bytes(out.train->size());
      data::HeldOut parts = data::hold_out(out.train, held, static_cast<uint64_t>(r.seed));
      out.train = std::move(parts.train);
      out.validation = std::move(parts.validation);
      out.held_out = parts.fingerprint;
    }
    return 0;
  });
  const DataSpec& spec = out.spec;
  const int64_t validation = out.validation ? out.validation->size() : 0, test = out.test ? out.test->size() : 0;
  LATHE_USER_CHECK(out.train->fields()[0].type == spec.sample && out.train->size() == spec.train &&
                       validation == spec.validation && test == spec.test && out.resident_bytes == spec.resident_bytes,
                   "{}: the files changed while they were read", out.train->description());
  LATHE_USER_CHECK(out.train->fields()[1].type == spec.label, "{}: expected targets of {}, got {}",
                   out.train->description(), to_string(spec.label), to_string(out.train->fields()[1].type));
  if (!out.test) return out;
  LATHE_USER_CHECK(out.test->fields()[1].type == spec.label, "{}: expected targets of {} as for training, got {}",
                   out.test->description(), to_string(spec.label), to_string(out.test->fields()[1].type));
  LATHE_USER_CHECK(out.test->fields()[0].type == spec.sample, "{}: expected samples of {} as for training, got {}",
                   out.test->description(), to_string(spec.sample), to_string(out.test->fields()[0].type));
  return out;
}

DataSpec describe_data(const Recipe& r) {
  refuse_custom_data(r);
  return located(r, [&] {
    const data::SourceInfo train = describe(r, Split::train);
    DataSpec spec{train.sample, train.classes, taken(r, Split::train, train.size), 0, train.resident_bytes,
                  train.label,  train.units};
    if (has_test(r)) {
      const data::SourceInfo test = describe(r, Split::test);
      spec.test = taken(r, Split::test, test.size);
      spec.resident_bytes += test.resident_bytes;
    }
    if (const int64_t held = held_out(r, spec.train); held > 0) {
      spec.resident_bytes += data::hold_out_bytes(spec.train);
      spec.train -= held;
      spec.validation = held;
    }
    check_fit(r, spec);
    return spec;
  });
}

namespace {

constexpr int64_t kMaxIdxBytes = int64_t{1} << 28;
constexpr int64_t kMaxNamedPixels = 1 << 26;  // of a file that was asked for; data.max_pixels is for folders

data::Samples one_sample(const Shape& shape, std::vector<std::byte> bytes, const std::string& path) {
  return {{DType::u8, shape}, std::move(bytes), {path}};
}

data::Samples read_idx_samples(const std::string& path, const Shape& sample) {
  const data::IdxArray a = data::parse_idx(data::read_file(path, kMaxIdxBytes), path);
  const int64_t n = a.shape.ndim() > 0 ? a.shape[0] : 0;
  LATHE_USER_CHECK(n > 0 && a.shape.numel() == n * sample.numel(), "{}: expected images of {}, got an array of {}",
                   path, to_string(sample), to_string(a.shape));
  const auto* first = reinterpret_cast<const std::byte*>(a.elements());
  data::Samples out{{DType::u8, sample}, {first, first + n * sample.numel()}, {}};
  for (int64_t i = 0; i < n; ++i) out.names.push_back(fmt::format("{}:{}", path, i));
  return out;
}

// What a file seems to be, by its first bytes.
std::string_view kind_of(std::span<const std::byte> start) {
  if (start.empty()) return "an empty file";
  if (data::is_png(start)) return "a PNG image";
  if (data::is_pnm(start)) return "a PGM or PPM image";
  const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
  if (text.starts_with("\xff\xd8\xff")) return "a JPEG image";
  if (text.starts_with("GIF8")) return "a GIF image";
  if (text.starts_with("\x1f\x8b")) return "a gzip file";
  if (text.starts_with("PK")) return "a zip file";
  const bool letters =
      std::ranges::all_of(text, [](unsigned char c) { return c >= ' ' || c == '\t' || c == '\n' || c == '\r'; });
  return letters ? "a text, such as csv" : "bytes of an unknown kind";
}

data::Samples read_any(const Recipe& r, const Preparation& known, const TensorType& sample, const std::string& path) {
  const SourceRule& source = source_of(r);
  if (source.read_file)
    if (auto samples = source.read_file(r, known, path)) return std::move(*samples);
  const std::vector<std::byte> start = data::read_start(path, 16).bytes;
  // Numbers whose mean no training arrays give are taken as they are.
  if (data::is_npy(start)) return data::read_npy_samples({.standardize = false}, known.numbers, path);
  const bool pixels = sample.dtype == DType::u8;
  LATHE_USER_CHECK(pixels, "{}: expected an .npy or .npz file with samples of {}, got {}", path, to_string(sample),
                   kind_of(start));
  if (data::is_png(start))
    return one_sample(sample.shape, data::read_png(path, sample.shape, source.facts.scales, kMaxNamedPixels), path);
  if (data::is_pnm(start)) return one_sample(sample.shape, data::read_pnm(path, sample.shape), path);
  const auto begins = [&](int a, int b) {
    return start.size() >= 2 && start[0] == std::byte(a) && start[1] == std::byte(b);
  };
  LATHE_USER_CHECK(
      begins(0x1f, 0x8b) || begins(0, 0),
      "{}: expected a PNG image, a binary PGM or PPM image, an .npy or IDX file, test:N or validation:N, got {}; "
      "convert it, for example "
      "with ImageMagick",
      path, kind_of(start));
  return read_idx_samples(path, sample.shape);
}

}  // namespace

Preparation learn_preparation(const Recipe& r) {
  return located(r, [&] {
    Preparation out;
    out.names = known_names(r);
    if (const SourceRule& source = source_of(r); source.learn) source.learn(r, out);
    return out;
  });
}

data::Samples read_samples(const Recipe& r, const Preparation& known, const TensorType& sample,
                           const std::string& path) {
  data::Samples out = located(r, [&] { return read_any(r, known, sample, path); });
  LATHE_USER_CHECK(out.type == sample, "{}: expected samples of {}, as the net takes them, got {}", path,
                   to_string(sample), to_string(out.type));
  return out;
}

std::vector<std::string> class_names(const Recipe& r) {
  return label_kind_of(r) == data::LabelKind::class_index && facts_of(r).table ? learn_preparation(r).names
                                                                               : known_names(r);
}

void check_fit(const Recipe& r, const DataSpec& spec) {
  RecipeErrors errors(r.origins);
  const bool tokens = spec.sample.dtype == DType::i32;
  if (tokens != takes_tokens(r))
    errors.fail({"model.family", "data.source"},
                fmt::format("expected a family for {}, as data.source = \"{}\" gives, got \"{}\"",
                            tokens ? "tokens (gpt, or bert with model.tokens)" : "images or numbers (all but gpt)",
                            r.data.source.name, r.model.family));
  const NormalizeRecipe plain;
  if (spec.sample.dtype == DType::f32 && r.data.normalize != plain)
    errors.fail({"data.normalize.mean", "data.normalize.std"},
                "expected no normalisation of samples that are no pixels; data.standardize is for them");
  if (r.train.batch_size > spec.train)
    errors.fail(
        {"train.batch_size", "data.train_samples", "data.validation"},
        fmt::format("expected at most {} (the number of training samples), got {}", spec.train, r.train.batch_size));
  if (!tokens) check_image_rules(r, {spec.sample.shape[0], spec.sample.shape[1], spec.sample.shape[2]}, errors);
  errors.finish();
}

}  // namespace lathe
