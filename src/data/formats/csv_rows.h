// The rows of a table as text: comma, semicolon or tab between the cells (detected from the first line), cells in
// double quotes where wanted.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace lathe::data {

inline constexpr size_t kMaxCsvColumns = 1 << 20;

// Calls row(line, cells) for each row that is not empty; `line` counts from 1, the cells live until the call returns.
// UserError with `name`:line where quotes are wrong, or a row has another number of cells than the first.
using CsvRow = std::function<void(int64_t line, std::span<const std::string_view> cells)>;
void for_each_row(std::string_view text, const std::string& name, const CsvRow& row);

std::string_view trimmed_cell(std::string_view cell);  // without spaces and tabs around it

}  // namespace lathe::data
