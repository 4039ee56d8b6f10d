// The file itself; run_data.cpp has what it is for.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "data/formats/csv_rows.h"
#include "io/checksum.h"
#include "rundir/run_data.h"

namespace lathe {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kDataFormat = "lathe-data";
constexpr int64_t kDataVersion = 1;
constexpr int64_t kMaxSampleNumel = int64_t{1} << 36;  // of the largest picture that data.shape can ask for
constexpr int64_t kMaxSamples = int64_t{1} << 48;
constexpr int64_t kMaxClasses = int64_t{1} << 31;
constexpr const char* kKindNames[] = {"ignored", "label", "number", "words"};  // by CsvColumn::Kind

nlohmann::ordered_json text_json(const std::string& text) {
  try {
    const Json whole(text);
    (void)whole.dump();  // throws where it is no UTF-8
    return text;
  } catch (const Json::exception&) {
    return std::vector<uint8_t>(text.begin(), text.end());
  }
}

nlohmann::ordered_json texts_json(const std::vector<std::string>& texts) {
  auto out = nlohmann::ordered_json::array();
  for (const std::string& t : texts) out.push_back(text_json(t));
  return out;
}

nlohmann::ordered_json type_json(const TensorType& t) {
  return {{"dtype", to_string(t.dtype)}, {"shape", t.shape.to_ints()}};
}

nlohmann::ordered_json table_json(const data::CsvSchema& t) {
  nlohmann::ordered_json out{{"header", t.header}, {"first_line", t.first_line}};
  out["columns"] = nlohmann::ordered_json::array();
  for (const data::CsvColumn& c : t.columns) {
    nlohmann::ordered_json column{{"name", text_json(c.name)}, {"kind", kKindNames[static_cast<size_t>(c.kind)]}};
    if (c.kind == data::CsvColumn::Kind::number) {
      column["mean"] = c.mean;
      column["scale"] = c.scale;
    }
    if (c.kind == data::CsvColumn::Kind::words) column["words"] = texts_json(c.words);
    out["columns"].push_back(std::move(column));
  }
  return out;
}

// A value of the file, with its place for errors.
class DataField {
 public:
  DataField(const Json& json, const std::string& path, std::string field)
      : json_(json), path_(path), field_(std::move(field)) {}

  [[noreturn]] void fail(const std::string& expected) const {
    throw UserError(fmt::format("{}: {}: expected {}, got {}; without this file, the data themselves are asked", path_,
                                field_, expected, shown()));
  }

  bool is_list() const { return json_.is_array(); }
  bool has(const char* key) const { return json_.is_object() && json_.contains(key); }
  DataField at(const char* key) const {
    if (!json_.is_object()) fail("an object");
    const auto found = json_.find(key);
    const std::string inner = field_.empty() ? key : fmt::format("{}.{}", field_, key);
    if (found == json_.end()) throw UserError(fmt::format("{}: {}: is missing", path_, inner));
    return {*found, path_, inner};
  }

  size_t count(int64_t most) const {
    if (!json_.is_array()) fail("an array");
    if (static_cast<int64_t>(json_.size()) > most) fail(fmt::format("at most {} elements", most));
    return json_.size();
  }
  DataField operator[](size_t i) const { return {json_[i], path_, fmt::format("{}[{}]", field_, i)}; }

  bool truth() const {
    if (!json_.is_boolean()) fail("true or false");
    return json_.get<bool>();
  }

  int64_t natural(int64_t least, int64_t most) const {
    const bool whole = json_.is_number_unsigned() && json_.get<uint64_t>() <= static_cast<uint64_t>(most);
    if (!whole || json_.get<int64_t>() < least) fail(fmt::format("a whole number from {} to {}", least, most));
    return json_.get<int64_t>();
  }

  double number() const {
    if (!json_.is_number() || !std::isfinite(json_.get<double>())) fail("a finite number");
    return json_.get<double>();
  }
  double scale() const {
    if (!json_.is_number() || !(json_.get<double>() > 0)) fail("a number above 0");
    return number();
  }
  // Without a name for each, which would cost more than the numbers.
  std::vector<double> numbers(bool positive) const {
    std::vector<double> out;
    out.reserve(count(kMaxRunDataBytes));
    for (size_t i = 0; i < json_.size(); ++i) {
      const Json& v = json_[i];
      const double d = v.is_number() ? v.get<double>() : 0;
      if (!v.is_number() || !std::isfinite(d) || (positive && d <= 0))
        positive ? (*this)[i].scale() : (*this)[i].number();
      out.push_back(d);
    }
    return out;
  }

  std::string text() const {
    if (json_.is_string()) return json_.get<std::string>();
    if (!json_.is_array()) fail("a string, or an array of its bytes");
    std::string out;
    for (size_t i = 0; i < json_.size(); ++i) out += static_cast<char>((*this)[i].natural(0, 255));
    return out;
  }
  std::vector<std::string> texts(int64_t most) const {
    std::vector<std::string> out;
    for (size_t i = 0, n = count(most); i < n; ++i) out.push_back((*this)[i].text());
    std::vector<std::string> sorted = out;
    std::ranges::sort(sorted);
    if (const auto twin = std::ranges::adjacent_find(sorted); twin != sorted.end()) fail("strings that differ");
    return out;
  }

  TensorType type() const {
    TensorType out;
    const DataField dtype = at("dtype"), dims = at("shape");
    const std::string name = dtype.json_.is_string() ? dtype.text() : std::string();
    const auto known = parse_dtype(name);
    if (!known || (*known != DType::f32 && *known != DType::u8 && *known != DType::i32)) dtype.fail("f32, u8 or i32");
    Ints shape;
    int64_t numel = 1;
    for (size_t i = 0, n = dims.count(3); i < n; ++i) {
      shape.push_back(dims[i].natural(1, kMaxSampleNumel / numel));
      numel *= shape.back();
    }
    return {*known, Shape(shape)};
  }

 private:
  std::string shown() const {
    if (json_.is_object() || json_.is_array()) return fmt::format("an {} of {}", json_.type_name(), json_.size());
    if (json_.is_string() && json_.get_ref<const std::string&>().size() > 60) return "a long string";
    return json_.dump(-1, ' ', true, Json::error_handler_t::replace);
  }

  const Json& json_;
  const std::string& path_;
  std::string field_;
};

data::CsvColumn column_of(const DataField& f) {
  data::CsvColumn c;
  const DataField kind = f.at("kind");
  const std::string name = kind.text();
  const auto known = std::ranges::find(kKindNames, name);
  if (known == std::end(kKindNames)) kind.fail("ignored, label, number or words");
  c.kind = static_cast<data::CsvColumn::Kind>(known - std::begin(kKindNames));
  c.name = f.at("name").text();
  if (c.kind == data::CsvColumn::Kind::number) {
    c.mean = f.at("mean").number();
    c.scale = f.at("scale").scale();
  }
  if (c.kind == data::CsvColumn::Kind::words) c.words = f.at("words").texts(data::kMaxCsvWords);
  return c;
}

// `features`: that a sample has.
data::CsvSchema table_of(const DataField& f, int64_t features) {
  data::CsvSchema t;
  t.header = f.at("header").truth();
  t.first_line = f.at("first_line").natural(1, kMaxSamples);
  const DataField columns = f.at("columns");
  int64_t labels = 0, found = 0;
  for (size_t i = 0, n = columns.count(data::kMaxCsvColumns); i < n; ++i) {
    t.columns.push_back(column_of(columns[i]));
    const data::CsvColumn& c = t.columns.back();
    labels += c.kind == data::CsvColumn::Kind::label;
    found += c.kind == data::CsvColumn::Kind::number ? 1 : static_cast<int64_t>(c.words.size());
  }
  if (labels != 1) columns.fail(fmt::format("one column of the kind label, not {}", labels));
  if (found != features) columns.fail(fmt::format("columns of {} features, as a sample has, not {}", features, found));
  return t;
}

bool is_sample(const TensorType& t) { return t.dtype == DType::i32 ? t.shape.ndim() == 1 : t.shape.ndim() == 3; }

// One pair for all columns, or a list of each.
data::LabelUnits units_from(const DataField& f, int64_t columns) {
  const DataField mean = f.at("mean"), scale = f.at("scale");
  if (!mean.is_list() && !scale.is_list()) return {mean.number(), scale.scale()};
  data::LabelUnits u{0, 1, mean.numbers(false), scale.numbers(true)};
  if (static_cast<int64_t>(u.means.size()) != columns) mean.fail(fmt::format("{} numbers, as a target has", columns));
  if (static_cast<int64_t>(u.scales.size()) != columns) scale.fail(fmt::format("{} numbers, as a target has", columns));
  return u;
}

RunData from_json(const DataField& f) {
  if (const DataField format = f.at("format"); format.text() != kDataFormat) format.fail(std::string(kDataFormat));
  f.at("version").natural(kDataVersion, kDataVersion);
  RunData out;
  DataSpec& spec = out.spec;
  spec.sample = f.at("sample").type();
  if (!is_sample(spec.sample)) f.at("sample").fail("f32 or u8 of 3 dimensions, or i32 of one");
  spec.label = f.at("target").type();
  spec.classes = f.at("classes").natural(1, kMaxClasses);
  spec.train = f.at("train").natural(1, kMaxSamples);
  spec.test = f.at("eval").natural(0, kMaxSamples);
  if (f.has("validation")) spec.validation = f.at("validation").natural(0, kMaxSamples);  // older files have none
  spec.units = units_from(f.at("units"), spec.label.numel());
  Preparation& p = out.preparation;
  p.names = f.at("names").texts(spec.classes);
  const int64_t numel = spec.sample.numel();
  if (f.has("table")) {
    if (spec.sample.dtype != DType::f32) f.at("sample").fail("f32 for a table");
    p.table = table_of(f.at("table"), numel);
    p.table->labels = p.names;
  }
  if (f.has("numbers")) {
    const DataField numbers = f.at("numbers");
    p.numbers = {numbers.at("mean").numbers(false), numbers.at("scale").numbers(true)};
    for (const char* key : {"mean", "scale"})
      if (static_cast<int64_t>((key[0] == 'm' ? p.numbers.mean : p.numbers.scale).size()) != numel)
        numbers.at(key).fail(fmt::format("{} numbers, as a sample has", numel));
  }
  return out;
}

}  // namespace

std::string to_json(const RunData& d) {
  nlohmann::ordered_json out;
  out["format"] = kDataFormat;
  out["version"] = kDataVersion;
  out["sample"] = type_json(d.spec.sample);
  out["target"] = type_json(d.spec.label);
  out["classes"] = d.spec.classes;
  out["train"] = d.spec.train;
  out["eval"] = d.spec.test;
  out["validation"] = d.spec.validation;
  if (const data::LabelUnits& u = d.spec.units; u.means.empty())
    out["units"] = {{"mean", u.mean}, {"scale", u.scale}};
  else
    out["units"] = {{"mean", u.means}, {"scale", u.scales}};
  out["names"] = texts_json(d.preparation.names);
  if (d.preparation.table) out["table"] = table_json(*d.preparation.table);
  if (const data::NpyScaling& n = d.preparation.numbers; !n.mean.empty())
    out["numbers"] = {{"mean", n.mean}, {"scale", n.scale}};
  return io::with_checksum(out.dump(2));
}

RunData parse_run_data(std::string_view text, const std::string& path) {
  io::check_checksum(text, path);
  const Json json = Json::parse(text, nullptr, false);
  LATHE_USER_CHECK(!json.is_discarded(), "{}: expected JSON, got something else", path);
  return from_json(DataField(json, path, ""));
}

}  // namespace lathe
