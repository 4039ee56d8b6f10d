#include "data/formats/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "data/fetch.h"
#include "data/file.h"
#include "data/formats/csv_rows.h"
#include "data/moments.h"

namespace lathe::data {
namespace {

constexpr int64_t kMaxCsvBytes = int64_t{4} << 30;
constexpr int64_t kTestEvery = 5;

// A cell as an error shows it.
std::string shown_cell(std::string_view cell) {
  std::string text = "\"";
  for (const char c : cell.substr(0, 40)) text += c >= ' ' && c < 127 ? c : '?';
  return text + (cell.size() > 40 ? "...\"" : "\"");
}

std::optional<double> number_of(std::string_view cell) {
  if (cell.starts_with('+')) cell.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc() || end != cell.data() + cell.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

bool has_decimal_comma(std::string_view cell) {
  const size_t comma = cell.find(',');
  if (comma == cell.npos || cell.find('.') != cell.npos) return false;
  std::string pointed(cell);
  pointed[comma] = '.';
  return number_of(pointed).has_value();
}

// The bytes of a file as the text that they must be.
std::string_view as_csv_text(const std::vector<std::byte>& bytes, const std::string& name) {
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  // Archives, arrays and images have a zero among their first bytes, as has text of 16 bits.
  LATHE_USER_CHECK(text.substr(0, 4096).find('\0') == text.npos && !text.starts_with("\x89PNG"),
                   "{}: expected a table (csv) as UTF-8 text, got a file that is not text", name);
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  return text;
}

struct Column {
  using Kind = CsvColumn::Kind;
  Kind kind = Kind::number;
  std::string name;
  std::map<std::string, int64_t, std::less<>> words;  // to their place among the column's features
  std::string first_word;                             // of the training rows
  Moments moments;
  double mean = 0, scale = 1;
  int64_t first_feature = 0;
};

bool is_number_cell(std::string_view cell) { return number_of(cell).has_value(); }
std::string_view column_name(std::string_view cell) { return cell.substr(0, 100); }
bool is_feature(const Column& c) { return c.kind == Column::Kind::number || c.kind == Column::Kind::words; }
constexpr size_t kNowhere = static_cast<size_t>(-1);

struct NumberOrder {
  // Numbers before words, by their size; words by their letters.
  bool operator()(const std::string& a, const std::string& b) const {
    const auto x = number_of(a), y = number_of(b);
    if (x && y && *x != *y) return *x < *y;
    if (x.has_value() != y.has_value()) return x.has_value();
    return a < b;
  }
};

// What is learned of the table from the training rows.
class Schema {
 public:
  Schema(const CsvConfig& c, std::string_view text) : c_(c) {
    bool first = true;
    int64_t row = 0;
    Moments targets;
    std::map<std::string, int64_t> tested;  // labels of test rows, with the first line of each
    for_each_row(text, c.path, [&](int64_t line, std::span<const std::string_view> cells) {
      if (std::exchange(first, false) && start(line, cells)) return;
      if (c_.test_path.empty() && row++ % kTestEvery == kTestEvery - 1) {
        if (!c_.values) tested.emplace(cells[label_], line);
        return;
      }
      if (rows_++ == 0) choose_kinds(line, cells);
      for (size_t i = 0; i < columns_.size(); ++i) learn(columns_[i], line, cells[i]);
      if (!c_.values) return;
      targets.add(number(columns_[label_], c_.path, line, cells[label_]));
    });
    LATHE_USER_CHECK(rows_ > 0, "{}: no rows", c.path);
    for (Column& column : columns_) finish(column);
    LATHE_USER_CHECK(features_ > 0, "{}: no column is left for features", c.path);
    if (c_.values) {
      units_.mean = targets.mean();
      units_.scale = targets.deviation();
    }
    check_tested(tested);
    int64_t next = 0;
    for (auto& [name, index] : labels_) index = next++;
    if (!c_.values && c_.classes > 0 && next != c_.classes)
      throw Misfit({"data.classes"},
                   fmt::format("expected {}, the number of different labels in column {} of {}, got {}", next,
                               columns_[label_].name, c_.path, c_.classes));
    check_row();
  }

  // As learned before.
  Schema(const CsvConfig& c, const CsvSchema& s) : c_(c), header_(s.header), first_line_(s.first_line) {
    for (const CsvColumn& known : s.columns) {
      Column column;
      column.kind = known.kind;
      column.name = known.name;
      column.mean = known.mean;
      column.scale = known.scale;
      for (const std::string& word : known.words) column.words.emplace(word, static_cast<int64_t>(column.words.size()));
      if (column.kind == Column::Kind::label) label_ = columns_.size();
      column.first_feature = features_;
      if (column.kind == Column::Kind::number) ++features_;
      if (column.kind == Column::Kind::words) features_ += static_cast<int64_t>(column.words.size());
      columns_.push_back(std::move(column));
    }
    LATHE_CHECK(features_ > 0 && columns_[label_].kind == Column::Kind::label, "a schema without features or label");
    check_row();
  }

  CsvSchema learned() const {
    CsvSchema out{.header = header_, .first_line = first_line_};
    for (const Column& column : columns_) {
      CsvColumn known{.kind = column.kind, .name = column.name, .mean = column.mean, .scale = column.scale};
      for (const auto& [word, place] : column.words) known.words.push_back(word);
      out.columns.push_back(std::move(known));
    }
    for (const auto& [label, index] : labels_) out.labels.push_back(label);
    return out;
  }

  int64_t features() const { return features_; }
  Shape shape() const { return c_.row > 0 ? Shape{features_ / c_.row, c_.row, 1} : Shape{1, features_, 1}; }
  int64_t classes() const { return c_.values ? 1 : static_cast<int64_t>(labels_.size()); }
  LabelUnits units() const { return units_; }
  TensorType target() const { return c_.values ? TensorType{DType::f32, {1}} : TensorType{DType::i32, {}}; }

  // Rows of a split, in the order of the file: f(line, cells).
  template <class F>
  void for_rows(std::string_view text, const std::string& name, Split split, F&& f) const {
    const bool own_file = !c_.test_path.empty();
    if (own_file && split == Split::test) return for_placed_rows(text, name, true, std::forward<F>(f));
    bool first = true;
    int64_t row = 0;
    for_each_row(text, name, [&](int64_t line, std::span<const std::string_view> cells) {
      if (std::exchange(first, false) && header_) return;
      const bool test = row++ % kTestEvery == kTestEvery - 1;
      if (own_file || test == (split == Split::test)) f(line, cells);
    });
  }

  // Rows of another file, whose columns may stand elsewhere: f(line, cells), the cells in the order of the training
  // file, empty where the file has none. `labelled`: it must have the column to predict.
  template <class F>
  void for_placed_rows(std::string_view text, const std::string& name, bool labelled, F&& f) const {
    std::vector<size_t> places;
    std::vector<std::string_view> placed(columns_.size());
    for_each_row(text, name, [&](int64_t line, std::span<const std::string_view> cells) {
      if (places.empty()) {
        bool header = false;
        places = places_in(name, line, cells, labelled, header);
        if (header) return;
      }
      for (size_t i = 0; i < places.size(); ++i)
        placed[i] = places[i] == kNowhere ? std::string_view() : cells[places[i]];
      f(line, std::span<const std::string_view>(placed));
    });
  }

  void fill(const std::string& name, int64_t line, std::span<const std::string_view> cells, float* out) const {
    for (size_t i = 0; i < columns_.size(); ++i) {
      const Column& column = columns_[i];
      float* to = out + column.first_feature;
      if (column.kind == Column::Kind::number) *to = standard(column, name, line, cells[i], column.mean, column.scale);
      if (column.kind != Column::Kind::words) continue;
      std::fill_n(to, column.words.size(), 0.0f);
      // A word that training did not have is none of them.
      if (const auto found = column.words.find(cells[i]); found != column.words.end()) to[found->second] = 1;
    }
  }

  // For each column its place in a row of another file, whose first row this is; kNowhere: it is not there, as the
  // column to predict may be unless `labelled`. `header`: the row has names.
  std::vector<size_t> places_in(const std::string& name, int64_t line, std::span<const std::string_view> row,
                                bool labelled, bool& header) const {
    header = header_ && (c_.header == "yes" || std::ranges::none_of(row, is_number_cell));
    const size_t all = columns_.size();
    std::vector<size_t> places(all, kNowhere);
    for (const bool whole : {true, false}) {
      if (row.size() != (whole ? all : all - 1) || (labelled && !whole)) continue;
      size_t next = 0;
      bool same = true;
      for (size_t i = 0; i < all; ++i) {
        if (i == label_ && !whole) continue;
        same = same && (!header || column_name(row[next]) == columns_[i].name);
        places[i] = next++;
      }
      if (same) return places;
    }
    LATHE_USER_CHECK(header, "{}:{}: expected {} columns as in {}{}, got {}", name, line, all, c_.path,
                     labelled ? std::string() : fmt::format(", or {} without {}", all - 1, columns_[label_].name),
                     row.size());
    std::ranges::fill(places, kNowhere);
    for (size_t k = 0; k < row.size(); ++k) {
      const auto found = std::ranges::find(columns_, column_name(row[k]), &Column::name);
      LATHE_USER_CHECK(found != columns_.end(), "{}:{}: column {} is none of {}: {}", name, line, shown_cell(row[k]),
                       c_.path, names_text());
      size_t& place = places[static_cast<size_t>(found - columns_.begin())];
      LATHE_USER_CHECK(place == kNowhere, "{}:{}: column {} is there twice", name, line, shown_cell(row[k]));
      place = k;
    }
    for (size_t i = 0; i < all; ++i)
      LATHE_USER_CHECK(places[i] != kNowhere || !(is_feature(columns_[i]) || (labelled && i == label_)),
                       "{}:{}: expected a column {} as in {}, got none of that name", name, line, columns_[i].name,
                       c_.path);
    return places;
  }

  float value_of(const std::string& name, int64_t line, std::span<const std::string_view> cells) const {
    return standard(columns_[label_], name, line, cells[label_], units_.mean, units_.scale);
  }

  int32_t label_of(const std::string& name, int64_t line, std::span<const std::string_view> cells) const {
    const auto found = labels_.find(std::string(cells[label_]));
    LATHE_USER_CHECK(found != labels_.end(), "{}:{}: column {}: expected a label that the training rows have, got {}",
                     name, line, columns_[label_].name, shown_cell(cells[label_]));
    return static_cast<int32_t>(found->second);
  }

 private:
  // A class that no training row has cannot be learned; of several the first one in the file is named.
  void check_tested(const std::map<std::string, int64_t>& tested) const {
    const std::pair<const std::string, int64_t>* first = nullptr;
    for (const auto& label : tested)
      if (!labels_.contains(label.first) && (!first || label.second < first->second)) first = &label;
    LATHE_USER_CHECK(!first,
                     "{}:{}: column {}: expected a label that the training rows have, got {}; every fifth row is a "
                     "test row: shuffle the rows, or set data.test_path",
                     c_.path, first->second, columns_[label_].name, shown_cell(first->first));
  }

  void check_row() const {
    if (c_.row > 0 && features_ % c_.row != 0)
      throw Misfit({"data.row"},
                   fmt::format("expected a divisor of the {} features of {}, got {}", features_, c_.path, c_.row));
  }

  // The first row; true when it is a header.
  bool start(int64_t line, std::span<const std::string_view> cells) {
    // A row of data has numbers in it; words among the features alone make no header.
    header_ = c_.header == "yes" || (c_.header == "auto" && std::ranges::none_of(cells, is_number_cell));
    for (size_t i = 0; i < cells.size(); ++i) {
      Column column;
      column.name = header_ ? std::string(column_name(cells[i])) : std::to_string(i);
      const auto twin = std::ranges::find(columns_, column.name, &Column::name);
      LATHE_USER_CHECK(
          twin == columns_.end() || column.name.empty(),
          "{}:{}: expected names that differ, got {} for columns {} and {}; data.header = \"no\" if these are data",
          c_.path, line, shown_cell(column.name), twin - columns_.begin() + 1, i + 1);
      columns_.push_back(std::move(column));
    }
    label_ = c_.label.empty() ? columns_.size() - 1 : find(line, "data.label", c_.label);
    columns_[label_].kind = Column::Kind::label;
    for (std::string_view rest = c_.ignore; !rest.empty();) {
      const size_t comma = rest.find(',');
      const size_t i = find(line, "data.ignore", trimmed_cell(rest.substr(0, comma)));
      if (i == label_) throw Misfit({"data.ignore"}, fmt::format("{} is the column to predict", columns_[i].name));
      columns_[i].kind = Column::Kind::ignored;
      rest = comma == rest.npos ? "" : rest.substr(comma + 1);
    }
    return header_;
  }

  // By name first: a header may have numbers as names.
  size_t find(int64_t line, const char* key, std::string_view wanted) const {
    for (size_t i = 0; header_ && i < columns_.size(); ++i)
      if (columns_[i].name == wanted) return i;
    size_t index = 0;
    const auto [end, error] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), index);
    if (error == std::errc() && end == wanted.data() + wanted.size() && index < columns_.size()) return index;
    throw Misfit({key}, fmt::format("expected one of the {} columns of {}:{} ({}), got {}", columns_.size(), c_.path,
                                    line, names_text(), shown_cell(wanted)));
  }

  std::string names_text() const {
    std::vector<std::string> names;
    for (size_t i = 0; i < std::min<size_t>(columns_.size(), 20); ++i) names.push_back(columns_[i].name);
    return fmt::format("{}{}", fmt::join(names, ", "), columns_.size() > 20 ? ", ..." : "");
  }

  void choose_kinds(int64_t line, std::span<const std::string_view> cells) {
    first_line_ = line;
    for (size_t i = 0; i < columns_.size(); ++i)
      if (columns_[i].kind == Column::Kind::number && !cells[i].empty() && !number_of(cells[i])) {
        columns_[i].kind = Column::Kind::words;
        columns_[i].first_word = cells[i];
      }
  }

  // Numbers that begin with a cell that is none are no words: each of them would become a feature.
  void check_words(const Column& column) const {
    const auto numbers = std::ranges::count_if(
        column.words, [](const auto& w) { return is_number_cell(w.first) || has_decimal_comma(w.first); });
    LATHE_USER_CHECK(
        2 * static_cast<size_t>(numbers) < column.words.size(),
        "{}:{}: column {}: expected a number as in other rows, or words in most of them, got {}; {}", c_.path,
        first_line_, column.name, shown_cell(column.first_word),
        has_decimal_comma(column.first_word) ? "write decimals with a point" : "data.ignore leaves columns out");
  }

  double number(const Column& column, const std::string& name, int64_t line, std::string_view cell) const {
    const auto value = number_of(cell);
    LATHE_USER_CHECK(value, "{}:{}: column {}: expected a number{}, got {}; data.ignore leaves columns out", name, line,
                     column.name,
                     column.kind == Column::Kind::number ? fmt::format(" as in line {}", first_line_) : std::string(),
                     cell.empty() ? "nothing" : shown_cell(cell));
    LATHE_USER_CHECK(std::abs(*value) <= std::numeric_limits<float>::max(),
                     "{}:{}: column {}: expected a number that f32 holds (at most 3.4e38), got {}", name, line,
                     column.name, shown_cell(cell));
    return *value;
  }

  float standard(const Column& column, const std::string& name, int64_t line, std::string_view cell, double mean,
                 double scale) const {
    const auto value = static_cast<float>((number(column, name, line, cell) - mean) / scale);
    LATHE_USER_CHECK(std::isfinite(value),
                     "{}:{}: column {}: expected a number near those of training ({} +- {}), got {}", name, line,
                     column.name, mean, scale, shown_cell(cell));
    return value;
  }

  void learn(Column& column, int64_t line, std::string_view cell) {
    if (column.kind == Column::Kind::number) {
      column.moments.add(number(column, c_.path, line, cell));
    } else if (column.kind == Column::Kind::words) {
      column.words.emplace(cell, 0);
      if (column.words.size() > kMaxCsvWords) check_words(column);
      LATHE_USER_CHECK(column.words.size() <= kMaxCsvWords,
                       "{}:{}: column {}: expected numbers, or at most {} different words, got one more ({}); "
                       "data.ignore leaves columns out",
                       c_.path, line, column.name, kMaxCsvWords, shown_cell(cell));
    } else if (column.kind == Column::Kind::label && !c_.values) {
      LATHE_USER_CHECK(!cell.empty() && cell.size() <= 1000, "{}:{}: column {}: expected a label, got {}", c_.path,
                       line, column.name, cell.empty() ? "nothing" : shown_cell(cell));
      labels_.emplace(cell, 0);
      LATHE_USER_CHECK(labels_.size() <= kMaxCsvLabels,
                       "{}:{}: column {}: expected at most {} different labels; for a number to predict, set "
                       "data.target = \"value\"",
                       c_.path, line, column.name, kMaxCsvLabels);
    }
  }

  void finish(Column& column) {
    column.first_feature = features_;
    if (column.kind == Column::Kind::number) {
      ++features_;
      if (!c_.standardize) return;
      column.mean = column.moments.mean();
      column.scale = column.moments.deviation();
    } else if (column.kind == Column::Kind::words) {
      check_words(column);
      int64_t place = 0;
      for (auto& [word, index] : column.words) index = place++;
      features_ += place;
    }
  }

  const CsvConfig& c_;
  bool header_ = false;
  std::vector<Column> columns_;
  size_t label_ = 0;
  int64_t rows_ = 0, features_ = 0, first_line_ = 1;
  std::map<std::string, int64_t, NumberOrder> labels_;
  LabelUnits units_;
};

class CsvSource final : public Source {
 public:
  CsvSource(const Schema& s, const CsvConfig& c, std::string_view text, const std::string& name, Split split)
      : classes_(s.classes()), units_(s.units()) {
    int64_t rows = 0;
    s.for_rows(text, name, split, [&](int64_t, std::span<const std::string_view>) { ++rows; });
    LATHE_USER_CHECK(rows > 0, "{}: no {} rows", name, to_string(split));
    const auto width = static_cast<size_t>(s.features());
    // At most 64 features come from two bytes of the file.
    features_.resize(static_cast<size_t>(checked_mul(rows, s.features(), name)));
    float* to = features_.data();
    (c.values ? values_.reserve(static_cast<size_t>(rows)) : labels_.reserve(static_cast<size_t>(rows)));
    s.for_rows(text, name, split, [&](int64_t line, std::span<const std::string_view> cells) {
      s.fill(name, line, cells, to);
      to += width;
      if (c.values)
        values_.push_back(s.value_of(name, line, cells));
      else
        labels_.push_back(s.label_of(name, line, cells));
    });
    size_ = rows;
    fields_[0] = {"features", {DType::f32, s.shape()}};
    fields_[1] = {c.values ? "target" : "label", s.target()};
    description_ = fmt::format("{} {} rows of {} features from {}", rows, to_string(split), width, name);
  }

  int64_t size() const override { return size_; }
  std::span<const Field> fields() const override { return fields_; }
  void read(int64_t index, SampleSpans fields) const override {
    LATHE_CHECK(index >= 0 && index < size(), "sample {} of {}", index, size());
    const size_t width = fields[0].size() / sizeof(float);
    std::memcpy(fields[0].data(), features_.data() + static_cast<size_t>(index) * width, fields[0].size());
    if (labels_.empty())
      std::memcpy(fields[1].data(), &values_[static_cast<size_t>(index)], sizeof(float));
    else
      std::memcpy(fields[1].data(), &labels_[static_cast<size_t>(index)], sizeof(int32_t));
  }
  int64_t classes() const override { return classes_; }
  std::string description() const override { return description_; }
  int64_t resident_bytes() const override {
    return static_cast<int64_t>(4 * (features_.size() + labels_.size() + values_.size()));
  }
  LabelUnits label_units() const override { return units_; }
  std::optional<int32_t> label(int64_t index) const override {
    return labels_.empty() ? std::optional<int32_t>() : labels_[static_cast<size_t>(index)];
  }

 private:
  int64_t classes_, size_ = 0;
  LabelUnits units_;
  std::vector<float> features_, values_;
  std::vector<int32_t> labels_;
  Field fields_[2];
  std::string description_;
};

}  // namespace

std::unique_ptr<Source> load_csv(const CsvConfig& c, Split split, CsvSchema* learned) {
  const std::vector<std::byte> train = read_file(c.path, kMaxCsvBytes, fetch_hint(c.path));
  const Schema schema(c, as_csv_text(train, c.path));
  if (learned) *learned = schema.learned();
  if (split == Split::train || c.test_path.empty())
    return std::make_unique<CsvSource>(schema, c, as_csv_text(train, c.path), c.path, split);
  const std::vector<std::byte> test = read_file(c.test_path, kMaxCsvBytes, fetch_hint(c.test_path));
  return std::make_unique<CsvSource>(schema, c, as_csv_text(test, c.test_path), c.test_path, split);
}

SourceInfo describe_csv(const CsvConfig& c, Split split) { return info_of(*load_csv(c, split)); }

CsvSchema learn_csv(const CsvConfig& c) {
  const std::vector<std::byte> train = read_file(c.path, kMaxCsvBytes, fetch_hint(c.path));
  return Schema(c, as_csv_text(train, c.path)).learned();
}

Samples read_csv_samples(const CsvConfig& c, const CsvSchema& known, const std::string& path) {
  const std::vector<std::byte> own = read_file(path, kMaxCsvBytes);
  const Schema schema(c, known);
  Samples out{{DType::f32, schema.shape()}, {}, {}};
  std::vector<float> features(static_cast<size_t>(schema.features()));
  schema.for_placed_rows(as_csv_text(own, path), path, false,
                         [&](int64_t line, std::span<const std::string_view> cells) {
                           schema.fill(path, line, cells, features.data());
                           const auto bytes = std::as_bytes(std::span(features));
                           out.bytes.insert(out.bytes.end(), bytes.begin(), bytes.end());
                           out.names.push_back(fmt::format("{}:{}", path, line));
                         });
  LATHE_USER_CHECK(!out.names.empty(), "{}: no rows", path);
  return out;
}

}  // namespace lathe::data
