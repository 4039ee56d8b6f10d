#include "rundir/run_data.h"

#include <algorithm>

#include "recipe/recipe_keys.h"
#include "recipe/sources/source.h"
#include "rundir/open_run.h"
#include "rundir/run_dir.h"
#include "workload/custom_data.h"

namespace lathe {
namespace {

// Whether the key changes how samples are read: those of all sources that do, and what a source has of its own.
bool is_reading_key(const Recipe& r, std::string_view path) {
  if (path == "data.source" || path == "data.target" || path == "data.classes") return true;
  const RecipeKey* key = find_recipe_key(r, path);
  return key && key->is_setting() && key->choice->key == "data.source" && key->effect != KeyEffect::how;
}

// The type of field 1 that data.target means.
TensorType target_type(const Recipe& r, const DataSpec& spec) {
  const Shape& s = spec.sample.shape;
  const data::LabelKind target = label_kind_of(r);
  if (target == data::LabelKind::value) return {DType::f32, {spec.classes}};
  if (target == data::LabelKind::mask && s.ndim() == 3) return {DType::u8, {s[0], s[1]}};
  if (target == data::LabelKind::image) return spec.sample;
  return {DType::i32, is_text(facts_of(r)) ? s : Shape()};
}

void check_recipe_fits(const Recipe& r, const RunData& d, const std::string& path) {
  const auto check = [&](bool ok, const char* field, const std::string& expected) {
    LATHE_USER_CHECK(ok, "{}: {}: expected {}, as the recipe of the run says", path, field, expected);
  };
  const TensorType target = target_type(r, d.spec);
  check(d.spec.label == target, "target", to_string(target));
  const bool table = facts_of(r).table;
  check(d.preparation.table.has_value() == table, "table", table ? "one" : "none");
  const bool* standardize = r.data.source.params.find<bool>("standardize");
  const bool scaled = standardize && *standardize && !table && d.spec.sample.dtype == DType::f32;
  check(d.preparation.numbers.mean.empty() != scaled, "numbers", scaled ? "some" : "none");
  check_fit(r, d.spec);
}

bool reads_as(const Recipe& a, const Recipe& b) {
  return std::ranges::none_of(diff(a, b), [&](const RecipeDifference& d) { return is_reading_key(a, d.key); });
}

}  // namespace

bool write_run_data(io::Fs& fs, const std::string& run, const RunData& d) {
  const std::string path = io::join_path(run, kRunDataFile), text = to_json(d);
  if (static_cast<int64_t>(text.size()) > kMaxRunDataBytes) {
    fs.remove_file(path);
    return false;
  }
  replace_text(fs, path, text);
  return true;
}

RunData load_run_data(const std::string& run, const Recipe& r) {
  if (is_custom_data(r)) return {custom_data_spec(r), {}};
  io::PosixFs fs;
  const std::string path = io::join_path(run, kRunDataFile);
  if (!io::info_at(fs, path) || !reads_as(load_run_recipe(run, {}), r)) return {describe_data(r), learn_preparation(r)};
  RunData d = parse_run_data(read_text(fs, path, kMaxRunDataBytes), path);
  check_recipe_fits(r, d, path);
  return d;
}

}  // namespace lathe
