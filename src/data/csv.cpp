#include "data/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "data/file.h"

namespace lathe::data {
namespace {

constexpr int64_t kMaxCsvBytes = int64_t{4} << 30;
constexpr size_t kMaxColumns = 1 << 20;
constexpr size_t kMaxWords = 64;  // different ones in a column of features: each becomes a feature
constexpr size_t kMaxLabels = 65536;
constexpr int64_t kTestEvery = 5;
constexpr const char* kCsvHint = "set data.path; `tools/fetch-data` gets the data of the built-in recipes";

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

std::string_view trimmed(std::string_view cell) {
  while (!cell.empty() && (cell.front() == ' ' || cell.front() == '\t')) cell.remove_prefix(1);
  while (!cell.empty() && (cell.back() == ' ' || cell.back() == '\t')) cell.remove_suffix(1);
  return cell;
}

char delimiter_of(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  const auto count = [&](char c) { return std::count(line.begin(), line.end(), c); };
  if (count('\t') > 0) return '\t';
  return count(';') > count(',') ? ';' : ',';
}

// The cells of one row after another.
class RowReader {
 public:
  RowReader(std::string_view text, const std::string& name)
      : text_(text), name_(name), delimiter_(delimiter_of(text)) {}

  // False at the end. Rows without any character are passed over.
  bool next() {
    for (;;) {
      if (at_ >= text_.size()) return false;
      first_line_ = line_;
      cells_.clear();
      owned_.clear();
      read_row();
      if (cells_.size() > 1 || !cells_[0].empty()) return true;
    }
  }

  int64_t line() const { return first_line_; }
  std::span<const std::string_view> cells() const { return cells_; }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw UserError(fmt::format("{}:{}: {} (column {})", name_, line_, what, cells_.size()));
  }

  void read_row() {
    for (;;) {
      cells_.push_back(read_cell());
      if (cells_.size() > kMaxColumns) fail(fmt::format("expected at most {} columns", kMaxColumns));
      if (at_ >= text_.size()) return;
      const char c = text_[at_++];
      if (c == '\n') {
        ++line_;
        return;
      }
      if (at_ == text_.size()) {  // a delimiter as the last byte: an empty cell follows
        cells_.push_back({});
        return;
      }
    }
  }

  std::string_view read_cell() {
    if (at_ < text_.size() && text_[at_] == '"') return read_quoted();
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != delimiter_ && text_[at_] != '\n') ++at_;
    std::string_view cell = text_.substr(begin, at_ - begin);
    if (cell.ends_with('\r')) cell.remove_suffix(1);
    return trimmed(cell);
  }

  std::string_view read_quoted() {
    const size_t begin = ++at_;
    bool doubled = false;
    for (;; ++at_) {
      if (at_ >= text_.size()) fail("a quote is not closed");
      if (text_[at_] == '\n') ++line_;
      if (text_[at_] != '"') continue;
      if (at_ + 1 >= text_.size() || text_[at_ + 1] != '"') break;
      doubled = true;
      ++at_;
    }
    std::string_view cell = text_.substr(begin, at_ - begin);
    ++at_;
    if (at_ < text_.size() && text_[at_] == '\r') ++at_;
    if (at_ < text_.size() && text_[at_] != delimiter_ && text_[at_] != '\n')
      fail("expected the end of the cell after a closing quote");
    if (!doubled) return cell;
    auto plain = std::make_unique<std::string>();
    for (size_t i = 0; i < cell.size(); ++i) {
      *plain += cell[i];
      if (cell[i] == '"') ++i;
    }
    owned_.push_back(std::move(plain));
    return *owned_.back();
  }

  std::string_view text_;
  const std::string& name_;
  char delimiter_;
  size_t at_ = 0;
  int64_t line_ = 1, first_line_ = 1;
  std::vector<std::string_view> cells_;
  std::vector<std::unique_ptr<std::string>> owned_;  // cells with quotes inside
};

std::string_view as_csv_text(const std::vector<std::byte>& bytes) {
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  return text;
}

struct Column {
  enum class Kind { ignored, label, number, words } kind = Kind::number;
  std::string name;
  std::map<std::string, int64_t, std::less<>> words;  // to their place among the column's features
  double sum = 0, squares = 0, mean = 0, scale = 1;
  int64_t first_feature = 0;
};

struct NumberOrder {
  // Numbers before words, by their size; words by their letters.
  bool operator()(const std::string& a, const std::string& b) const {
    const auto x = number_of(a), y = number_of(b);
    if (x && y && *x != *y) return *x < *y;
    if (x.has_value() != y.has_value()) return x.has_value();
    return a < b;
  }
};

// What the training rows tell of the table.
class Schema {
 public:
  Schema(const CsvConfig& c, std::string_view text) : c_(c) {
    bool first = true;
    int64_t row = 0;
    double sum = 0, squares = 0;
    for_each_row(text, c.path, [&](int64_t line, std::span<const std::string_view> cells) {
      if (std::exchange(first, false) && start(line, cells)) return;
      if (c_.test_path.empty() && row++ % kTestEvery == kTestEvery - 1) return;
      if (rows_++ == 0) choose_kinds(line, cells);
      for (size_t i = 0; i < columns_.size(); ++i) learn(columns_[i], line, cells[i]);
      if (!c_.values) return;
      const double v = number(columns_[label_], c_.path, line, cells[label_]);
      sum += v;
      squares += v * v;
    });
    LATHE_USER_CHECK(rows_ > 0, "{}: no rows", c.path);
    const auto n = static_cast<double>(rows_);
    for (Column& column : columns_) finish(column, n);
    LATHE_USER_CHECK(features_ > 0, "{}: no column is left for features", c.path);
    if (c_.values) {
      units_.mean = sum / n;
      units_.scale = deviation(squares, sum, n);
    }
    int64_t next = 0;
    for (auto& [name, index] : labels_) index = next++;
    if (!c_.values && c_.classes > 0 && next != c_.classes)
      throw Misfit({"data.classes"},
                   fmt::format("expected {}, the number of different labels in column {} of {}, got {}", next,
                               columns_[label_].name, c_.path, c_.classes));
    if (c_.row > 0 && features_ % c_.row != 0)
      throw Misfit({"data.row"},
                   fmt::format("expected a divisor of the {} features of {}, got {}", features_, c_.path, c_.row));
  }

  int64_t features() const { return features_; }
  Shape shape() const { return c_.row > 0 ? Shape{features_ / c_.row, c_.row, 1} : Shape{1, features_, 1}; }
  int64_t classes() const { return c_.values ? 1 : static_cast<int64_t>(labels_.size()); }
  TargetUnits units() const { return units_; }
  TensorType target() const { return c_.values ? TensorType{DType::f32, {1}} : TensorType{DType::i32, {}}; }

  // Rows of a split, in the order of the file: f(line, cells).
  template <class F>
  void for_rows(std::string_view text, const std::string& name, Split split, F&& f) const {
    const bool own_file = !c_.test_path.empty();
    bool first = true;
    int64_t row = 0;
    for_each_row(text, name, [&](int64_t line, std::span<const std::string_view> cells) {
      if (std::exchange(first, false)) {
        LATHE_USER_CHECK(cells.size() == columns_.size(), "{}:{}: expected {} columns as in {}, got {}", name, line,
                         columns_.size(), c_.path, cells.size());
        if (header_) return;
      }
      const bool test = row++ % kTestEvery == kTestEvery - 1;
      if (own_file || test == (split == Split::test)) f(line, cells);
    });
  }

  void fill(const std::string& name, int64_t line, std::span<const std::string_view> cells, float* out) const {
    for (size_t i = 0; i < columns_.size(); ++i) {
      const Column& column = columns_[i];
      float* to = out + column.first_feature;
      if (column.kind == Column::Kind::number)
        *to = static_cast<float>((number(column, name, line, cells[i]) - column.mean) / column.scale);
      if (column.kind != Column::Kind::words) continue;
      std::fill_n(to, column.words.size(), 0.0f);
      // A word that training did not have is none of them.
      if (const auto found = column.words.find(cells[i]); found != column.words.end()) to[found->second] = 1;
    }
  }

  float target_of(const std::string& name, int64_t line, std::span<const std::string_view> cells) const {
    return static_cast<float>((number(columns_[label_], name, line, cells[label_]) - units_.mean) / units_.scale);
  }

  int32_t label_of(const std::string& name, int64_t line, std::span<const std::string_view> cells) const {
    const auto found = labels_.find(std::string(cells[label_]));
    LATHE_USER_CHECK(found != labels_.end(), "{}:{}: column {}: expected a label that the training rows have, got {}",
                     name, line, columns_[label_].name, shown_cell(cells[label_]));
    return static_cast<int32_t>(found->second);
  }

 private:
  // The first row; true when it is a header.
  bool start(int64_t line, std::span<const std::string_view> cells) {
    // A row of data has numbers in it; words among the features alone make no header.
    const auto is_number = [](std::string_view cell) { return number_of(cell).has_value(); };
    header_ = c_.header == "yes" || (c_.header == "auto" && std::ranges::none_of(cells, is_number));
    for (size_t i = 0; i < cells.size(); ++i) {
      Column column;
      column.name = header_ ? std::string(cells[i].substr(0, 100)) : std::to_string(i);
      columns_.push_back(std::move(column));
    }
    label_ = c_.label.empty() ? columns_.size() - 1 : find(line, "data.label", c_.label);
    columns_[label_].kind = Column::Kind::label;
    for (std::string_view rest = c_.ignore; !rest.empty();) {
      const size_t comma = rest.find(',');
      const size_t i = find(line, "data.ignore", trimmed(rest.substr(0, comma)));
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
    std::vector<std::string> names;
    for (size_t i = 0; i < std::min<size_t>(columns_.size(), 20); ++i) names.push_back(columns_[i].name);
    throw Misfit({key},
                 fmt::format("expected one of the {} columns of {}:{} ({}{}), got {}", columns_.size(), c_.path, line,
                             fmt::join(names, ", "), columns_.size() > 20 ? ", ..." : "", shown_cell(wanted)));
  }

  void choose_kinds(int64_t line, std::span<const std::string_view> cells) {
    first_line_ = line;
    for (size_t i = 0; i < columns_.size(); ++i)
      if (columns_[i].kind == Column::Kind::number && !cells[i].empty() && !number_of(cells[i]))
        columns_[i].kind = Column::Kind::words;
  }

  double number(const Column& column, const std::string& name, int64_t line, std::string_view cell) const {
    const auto value = number_of(cell);
    LATHE_USER_CHECK(value, "{}:{}: column {}: expected a number{}, got {}; data.ignore leaves columns out", name, line,
                     column.name,
                     column.kind == Column::Kind::number ? fmt::format(" as in line {}", first_line_) : std::string(),
                     cell.empty() ? "nothing" : shown_cell(cell));
    return *value;
  }

  void learn(Column& column, int64_t line, std::string_view cell) {
    if (column.kind == Column::Kind::number) {
      const double v = number(column, c_.path, line, cell);
      column.sum += v;
      column.squares += v * v;
    } else if (column.kind == Column::Kind::words) {
      column.words.emplace(cell, 0);
      LATHE_USER_CHECK(column.words.size() <= kMaxWords,
                       "{}:{}: column {}: expected numbers, or at most {} different words, got one more ({}); "
                       "data.ignore leaves columns out",
                       c_.path, line, column.name, kMaxWords, shown_cell(cell));
    } else if (column.kind == Column::Kind::label && !c_.values) {
      LATHE_USER_CHECK(!cell.empty() && cell.size() <= 1000, "{}:{}: column {}: expected a label, got {}", c_.path,
                       line, column.name, cell.empty() ? "nothing" : shown_cell(cell));
      labels_.emplace(cell, 0);
      LATHE_USER_CHECK(labels_.size() <= kMaxLabels,
                       "{}:{}: column {}: expected at most {} different labels; for a number to predict, set "
                       "data.target = \"value\"",
                       c_.path, line, column.name, kMaxLabels);
    }
  }

  static double deviation(double squares, double sum, double n) {
    const double variance = squares / n - sum / n * (sum / n);
    // A column that is constant but for rounding has no deviation to divide by.
    return variance > 1e-12 * std::max(1.0, squares / n) ? std::sqrt(variance) : 1.0;
  }

  void finish(Column& column, double n) {
    column.first_feature = features_;
    if (column.kind == Column::Kind::number) {
      ++features_;
      if (!c_.standardize) return;
      column.mean = column.sum / n;
      column.scale = deviation(column.squares, column.sum, n);
    } else if (column.kind == Column::Kind::words) {
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
  TargetUnits units_;
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
    (c.values ? targets_.reserve(static_cast<size_t>(rows)) : labels_.reserve(static_cast<size_t>(rows)));
    s.for_rows(text, name, split, [&](int64_t line, std::span<const std::string_view> cells) {
      s.fill(name, line, cells, to);
      to += width;
      if (c.values)
        targets_.push_back(s.target_of(name, line, cells));
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
      std::memcpy(fields[1].data(), &targets_[static_cast<size_t>(index)], sizeof(float));
    else
      std::memcpy(fields[1].data(), &labels_[static_cast<size_t>(index)], sizeof(int32_t));
  }
  int64_t classes() const override { return classes_; }
  std::string description() const override { return description_; }
  int64_t resident_bytes() const override {
    return static_cast<int64_t>(4 * (features_.size() + labels_.size() + targets_.size()));
  }
  TargetUnits target_units() const override { return units_; }

 private:
  int64_t classes_, size_ = 0;
  TargetUnits units_;
  std::vector<float> features_, targets_;
  std::vector<int32_t> labels_;
  Field fields_[2];
  std::string description_;
};

}  // namespace

void for_each_row(std::string_view text, const std::string& name, const CsvRow& row) {
  RowReader reader(text, name);
  size_t columns = 0;
  while (reader.next()) {
    if (columns == 0) columns = reader.cells().size();
    LATHE_USER_CHECK(reader.cells().size() == columns, "{}:{}: expected {} cells as in the first row, got {}", name,
                     reader.line(), columns, reader.cells().size());
    row(reader.line(), reader.cells());
  }
}

std::unique_ptr<Source> load_csv(const CsvConfig& c, Split split) {
  const std::vector<std::byte> train = read_file(c.path, kMaxCsvBytes, kCsvHint);
  const Schema schema(c, as_csv_text(train));
  if (split == Split::train || c.test_path.empty())
    return std::make_unique<CsvSource>(schema, c, as_csv_text(train), c.path, split);
  const std::vector<std::byte> test = read_file(c.test_path, kMaxCsvBytes, kCsvHint);
  return std::make_unique<CsvSource>(schema, c, as_csv_text(test), c.test_path, split);
}

SourceInfo describe_csv(const CsvConfig& c, Split split) { return info_of(*load_csv(c, split)); }

}  // namespace lathe::data
