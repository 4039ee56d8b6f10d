// SharedString: a text that many have and nobody changes. A copy costs a count, not an allocation.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace lathe {

class SharedString {  // See the top of the file.
 public:
  SharedString() = default;       // empty
  SharedString(std::string text)  // this one
      : text_(text.empty() ? nullptr : std::make_shared<const std::string>(std::move(text))) {}
  SharedString(const char* text) : SharedString(std::string(text)) {}  // this one

  const std::string& str() const {  // the text
    static const std::string none;
    return text_ ? *text_ : none;
  }
  bool empty() const { return !text_; }                  // no character
  operator const std::string&() const { return str(); }  // the text
  // The same characters.
  friend bool operator==(const SharedString& a, const SharedString& b) { return a.str() == b.str(); }
  friend bool operator==(const SharedString& a, const char* b) { return a.str() == b; }       // the same characters
  friend bool operator==(const SharedString& a, std::string_view b) { return a.str() == b; }  // the same characters

 private:
  std::shared_ptr<const std::string> text_;  // null: empty
};

}  // namespace lathe

namespace fmt {

template <>
struct formatter<lathe::SharedString> : formatter<std::string> {              // As its text.
  auto format(const lathe::SharedString& s, format_context& context) const {  // see there
    return formatter<std::string>::format(s.str(), context);
  }
};

}  // namespace fmt
