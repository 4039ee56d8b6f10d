// data.json as a file that anybody may have written.
#include "rundir/run_data.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/philox.h"
#include "io/checksum.h"

namespace lathe {
namespace {

using nlohmann::ordered_json;
using Kind = data::CsvColumn::Kind;

RunData table_data() {
  RunData d;
  d.spec = {{DType::f32, {1, 3, 1}}, 2, 80, 20, 0, {DType::i32, {}}, {0.1 + 0.2, 1.0 / 3}};
  d.preparation.names = {"caf\xe9", "caf\xc3\xa9"};  // the first is no UTF-8
  d.preparation.table = data::CsvSchema{
      .header = true,
      .first_line = 2,
      .columns = {{.kind = Kind::number, .name = "size", .mean = -1e-300, .scale = std::nextafter(1.0, 2.0)},
                  {.kind = Kind::words, .name = "a \"b\"", .words = {std::string("\0\n", 2), "\xff"}},
                  {.kind = Kind::ignored, .name = ""},
                  {.kind = Kind::label, .name = "kind"}},
      .labels = d.preparation.names};
  return d;
}

RunData array_data() {
  RunData d;
  d.spec = {{DType::f32, {2, 1, 1}}, 1, 8, 2, 0, {DType::f32, {1}}, {1e300, 1e-300}};
  d.preparation.numbers = {{-0.0, 1e-7}, {3.14159, 1}};
  return d;
}

RunData columns_data() {
  RunData d = array_data();
  d.spec.classes = 2;
  d.spec.label = {DType::f32, {2}};
  d.spec.validation = 3;
  d.spec.units = data::units_of({5000.1, 0.1 + 0.2}, {1e3, 1e-300});
  return d;
}

// The text with another content, and the checksum of it.
std::string edited(const RunData& d, const std::function<void(ordered_json&)>& edit) {
  ordered_json json = ordered_json::parse(to_json(d));
  json.erase("checksum");
  edit(json);
  return io::with_checksum(json.dump(2));
}

TEST(RunData, ComesBackBitByBit) {
  for (const RunData& d : {table_data(), array_data(), columns_data()}) {
    const RunData back = parse_run_data(to_json(d), "data.json");
    EXPECT_EQ(back.preparation, d.preparation);
    EXPECT_EQ(back.spec.sample, d.spec.sample);
    EXPECT_EQ(back.spec.label, d.spec.label);
    EXPECT_EQ(back.spec.classes, d.spec.classes);
    EXPECT_EQ(back.spec.train, d.spec.train);
    EXPECT_EQ(back.spec.test, d.spec.test);
    EXPECT_EQ(back.spec.validation, d.spec.validation);
    EXPECT_EQ(back.spec.units.mean, d.spec.units.mean);
    EXPECT_EQ(back.spec.units.scale, d.spec.units.scale);
    EXPECT_EQ(back.spec.units.means, d.spec.units.means);
    EXPECT_EQ(back.spec.units.scales, d.spec.units.scales);
    EXPECT_EQ(to_json(back), to_json(d));
  }
}

TEST(RunData, OnePairOfUnitsIsForAllColumns) {
  const std::string text = edited(columns_data(), [](auto& j) { j["units"] = {{"mean", 3}, {"scale", 2}}; });
  const data::LabelUnits u = parse_run_data(text, "data.json").spec.units;
  for (const size_t column : {0, 1}) {
    EXPECT_EQ(u.mean_of(column), 3);
    EXPECT_EQ(u.scale_of(column), 2);
  }
}

TEST(RunData, WrongFieldsAreNamed) {
  const auto expect = [](const RunData& d, const char* part, const std::function<void(ordered_json&)>& edit) {
    try {
      parse_run_data(edited(d, edit), "runs/a/data.json");
      ADD_FAILURE() << part;
    } catch (const UserError& e) {
      EXPECT_EQ(e.exit_code(), Exit::bad_data);
      EXPECT_TRUE(std::string(e.what()).starts_with("runs/a/data.json: ")) << e.what();
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what() << " has no " << part;
    }
  };
  const RunData t = table_data(), a = array_data();
  expect(t, "format: expected lathe-data, got \"x\"", [](auto& j) { j["format"] = "x"; });
  expect(t, "version: expected a whole number from 1 to 1, got 2", [](auto& j) { j["version"] = 2; });
  expect(t, "sample: is missing", [](auto& j) { j.erase("sample"); });
  expect(t, "sample: expected an object, got 3", [](auto& j) { j["sample"] = 3; });
  expect(t, "sample.dtype: expected f32, u8 or i32, got \"f64\"", [](auto& j) { j["sample"]["dtype"] = "f64"; });
  expect(t, "sample.dtype: expected f32, u8 or i32, got an array", [](auto& j) { j["sample"]["dtype"] = {1}; });
  expect(t, "sample.shape: expected at most 3 elements", [](auto& j) { j["sample"]["shape"] = {1, 1, 1, 1}; });
  expect(t, "sample.shape[1]: expected a whole number from 1", [](auto& j) { j["sample"]["shape"][1] = 0; });
  expect(t, "sample.shape[1]: expected a whole number from 1", [](auto& j) { j["sample"]["shape"][1] = -3; });
  expect(t, "sample.shape[1]: expected a whole number from 1", [](auto& j) { j["sample"]["shape"][1] = 1.5; });
  expect(t, "sample.shape[2]: expected a whole number from 1 to 16, got 32", [](auto& j) {
    j["sample"]["shape"] = {1, int64_t{1} << 32, 32};
  });
  expect(t, "sample: expected f32 or u8 of 3 dimensions", [](auto& j) { j["sample"]["dtype"] = "i32"; });
  expect(t, "sample: expected f32 or u8 of 3 dimensions", [](auto& j) { j["sample"]["shape"] = {3}; });
  expect(t, "sample: expected f32 for a table", [](auto& j) { j["sample"]["dtype"] = "u8"; });
  expect(t, "target.shape: is missing", [](auto& j) { j["target"].erase("shape"); });
  expect(t, "classes: expected a whole number", [](auto& j) { j["classes"] = "two"; });
  expect(t, "classes: expected a whole number", [](auto& j) { j["classes"] = uint64_t{1} << 63; });
  expect(t, "train: expected a whole number from 1", [](auto& j) { j["train"] = 0; });
  expect(t, "eval: expected a whole number from 0", [](auto& j) { j["eval"] = -1; });
  expect(t, "units.mean: expected a finite number, got null", [](auto& j) { j["units"]["mean"] = nullptr; });
  expect(t, "units.scale: expected a number above 0, got 0", [](auto& j) { j["units"]["scale"] = 0; });
  const RunData c = columns_data();
  expect(c, "units.mean: expected 2 numbers, as a target has", [](auto& j) { j["units"]["mean"].push_back(1); });
  expect(c, "units.scale: expected 2 numbers, as a target has", [](auto& j) { j["units"]["scale"].erase(0); });
  expect(c, "units.scale[1]: expected a number above 0, got 0", [](auto& j) { j["units"]["scale"][1] = 0; });
  expect(c, "units.scale: expected an array, got 1", [](auto& j) { j["units"]["scale"] = 1; });
  expect(t, "names: expected at most 2 elements", [](auto& j) { j["names"] = {"a", "b", "c"}; });
  expect(t, "names: expected strings that differ", [](auto& j) { j["names"] = {"a", "a"}; });
  expect(t, "names[0]: expected a string, or an array of its bytes", [](auto& j) { j["names"][0] = 1; });
  expect(t, "names[0][1]: expected a whole number from 0 to 255", [](auto& j) { j["names"][0] = {1, 256}; });
  expect(t, "table.header: expected true or false", [](auto& j) { j["table"]["header"] = "yes"; });
  expect(t, "table.columns: expected an array", [](auto& j) { j["table"]["columns"] = "all"; });
  expect(t, "table.columns: expected one column of the kind label, not 0",
         [](auto& j) { j["table"]["columns"].erase(3); });
  expect(t, "table.columns: expected one column of the kind label, not 2",
         [](auto& j) { j["table"]["columns"][2]["kind"] = "label"; });
  expect(t, "table.columns: expected columns of 3 features, as a sample has, not 2",
         [](auto& j) { j["table"]["columns"].erase(0); });
  expect(t, "table.columns[0].kind: expected ignored, label, number or words",
         [](auto& j) { j["table"]["columns"][0]["kind"] = "float"; });
  expect(t, "table.columns[0].scale: is missing", [](auto& j) { j["table"]["columns"][0].erase("scale"); });
  expect(t, "table.columns[0].scale: expected a number above 0",
         [](auto& j) { j["table"]["columns"][0]["scale"] = -1; });
  expect(t, "table.columns[1].words: expected at most 64 elements", [](auto& j) {
    for (int i = 0; i < 64; ++i) j["table"]["columns"][1]["words"].push_back(std::to_string(i));
  });
  expect(a, "numbers.mean: expected 2 numbers, as a sample has", [](auto& j) { j["numbers"]["mean"] = {1}; });
  expect(a, "numbers.scale: expected 2 numbers, as a sample has", [](auto& j) { j["numbers"]["scale"].push_back(1); });
  expect(a, "numbers.scale[1]: expected a number above 0, got 0", [](auto& j) { j["numbers"]["scale"][1] = 0; });
  expect(a, "numbers.mean[0]: expected a finite number, got \"x\"", [](auto& j) { j["numbers"]["mean"][0] = "x"; });
}

// Nothing but UserError, whatever is in the file.
bool is_refused(const std::string& text) {
  try {
    parse_run_data(text, "data.json");
    return false;
  } catch (const UserError&) {
    return true;
  }
}

TEST(RunData, DamageIsFound) {
  for (const RunData& d : {table_data(), array_data()}) {
    const std::string text = to_json(d);
    for (size_t n = 0; n < text.size(); ++n) EXPECT_TRUE(is_refused(text.substr(0, n))) << n;
    for (size_t i = 0; i < text.size(); ++i) {
      std::string other = text;
      other[i] = static_cast<char>(other[i] ^ 1);
      EXPECT_TRUE(is_refused(other)) << i;
    }
  }
}

TEST(RunData, GarbledFilesWithAChecksumCrashNothing) {
  const CounterRng rng(7, 0, 0, 0);
  uint64_t draw = 0;
  int64_t refused = 0, all = 0;
  for (const RunData& d : {table_data(), array_data()}) {
    ordered_json plain = ordered_json::parse(to_json(d));
    plain.erase("checksum");
    const std::string text = plain.dump(2);
    for (int k = 0; k < 2000; ++k, ++all) {
      std::string other = text;
      for (uint64_t n = 1 + rng.below(draw++, 4); n > 0; --n) {
        const auto at = static_cast<size_t>(rng.below(draw++, other.size() - 2));
        const auto byte = static_cast<char>(rng.below(draw++, 256));
        switch (rng.below(draw++, 3)) {
          case 0: other[at] = byte; break;
          case 1: other.erase(at, 1 + rng.below(draw++, 8)); break;
          default: other.insert(at, 1, byte);
        }
      }
      if (!other.ends_with("\n}")) other += "\n}";
      refused += is_refused(io::with_checksum(other));
    }
  }
  EXPECT_GT(refused, all / 2);
  EXPECT_LT(refused, all);  // a changed digit of a mean is another mean
  EXPECT_TRUE(is_refused(io::with_checksum(std::string(1 << 20, '[') + "\n}")));
  std::string deep = "{\"format\": ";
  for (int i = 0; i < 100000; ++i) deep += "[";
  for (int i = 0; i < 100000; ++i) deep += "]";
  EXPECT_TRUE(is_refused(io::with_checksum(deep + "\n}")));
  EXPECT_TRUE(is_refused(io::with_checksum("[\n}")));
}

}  // namespace
}  // namespace lathe
