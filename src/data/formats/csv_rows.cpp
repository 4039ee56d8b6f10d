#include "data/formats/csv_rows.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "base/error.h"

namespace lathe::data {
namespace {

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

  // False at the end. Rows without any character are skipped.
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
      if (cells_.size() > kMaxCsvColumns) fail(fmt::format("expected at most {} columns", kMaxCsvColumns));
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
    return trimmed_cell(cell);
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

}  // namespace

std::string_view trimmed_cell(std::string_view cell) {
  while (!cell.empty() && (cell.front() == ' ' || cell.front() == '\t')) cell.remove_prefix(1);
  while (!cell.empty() && (cell.back() == ' ' || cell.back() == '\t')) cell.remove_suffix(1);
  return cell;
}

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

}  // namespace lathe::data
