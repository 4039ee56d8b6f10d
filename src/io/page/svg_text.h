// Text of charts: numbers that are short and still differ, names that fit in their place. All text is UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace lathe::io {

std::string escape_html(std::string_view);
std::string readable_text(const std::string& bytes);  // what is no UTF-8 is replaced, and so are control characters
std::string short_number(double, int digits = 3);     // "1.5k", "0.002", "3.1e-05"
// A place of an axis whose marks are `step` apart: as many digits as distinguish it from its neighbours, all of them
// shown.
std::string tick_number(double, double step);

// About how wide a text is, in heights of its letters: for a common sans-serif.
double text_width(std::string_view);
// The text, or its beginning and an ellipsis, not wider than `most`; whole characters.
std::string shortened(std::string_view, double most);

}  // namespace lathe::io
