#include "ir/attr.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <cmath>
#include <functional>

#include "ir/graph.h"
#include "ir/print.h"

namespace lathe {

uint64_t hash_combine(uint64_t seed, uint64_t value) {
  // The finaliser of splitmix64 over both: good enough for hash tables, stable across runs.
  uint64_t z = seed * 0x9E3779B97F4A7C15ull + value + 0x632BE59BD9B4E019ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

namespace {

struct AttrEqual {
  bool operator()(double a, double b) const { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }
  bool operator()(const GraphPtr& a, const GraphPtr& b) const {
    return a == b || (a && b && structurally_equal(*a, *b));
  }
  template <class T>
  bool operator()(const T& a, const T& b) const {
    return a == b;
  }
  template <class T, class U>
  bool operator()(const T&, const U&) const {
    return false;
  }
};

struct AttrHash {
  uint64_t operator()(bool v) const { return v; }
  uint64_t operator()(int64_t v) const { return static_cast<uint64_t>(v); }
  uint64_t operator()(double v) const { return std::bit_cast<uint64_t>(v); }
  uint64_t operator()(const std::string& v) const { return std::hash<std::string>{}(v); }
  uint64_t operator()(DType v) const { return static_cast<uint64_t>(v); }
  uint64_t operator()(const Ints& v) const {
    uint64_t h = v.size();
    for (int64_t i : v) h = hash_combine(h, static_cast<uint64_t>(i));
    return h;
  }
  uint64_t operator()(const GraphPtr& v) const { return v ? structural_hash(*v) : 0; }
};

struct AttrText {
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(int64_t v) const { return std::to_string(v); }
  std::string operator()(double v) const { return format_double(v); }
  std::string operator()(const std::string& v) const {
    std::string out = "\"";
    for (char c : v) {
      if (c == '"' || c == '\\') out += '\\';
      if (c == '\n') {
        out += "\\n";
        continue;
      }
      out += c;
    }
    return out + '"';
  }
  std::string operator()(DType v) const { return std::string(lathe::to_string(v)); }
  std::string operator()(const Ints& v) const { return fmt::format("[{}]", fmt::join(v, ", ")); }
  std::string operator()(const GraphPtr& v) const { return v ? print(*v) : "none"; }
};

}  // namespace

bool equal(const Attrs& a, const Attrs& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].first != b[i].first || !std::visit(AttrEqual{}, a[i].second, b[i].second)) return false;
  return true;
}

uint64_t hash(const Attrs& attrs) {
  uint64_t h = attrs.size();
  for (const auto& [name, attr] : attrs) h = hash_combine(h, std::visit(AttrHash{}, attr));
  return h;
}

std::string to_string(const Attrs& attrs) {
  if (attrs.empty()) return "";
  std::string out = "{";
  for (const auto& [name, attr] : attrs) {
    if (out.size() > 1) out += ", ";
    out += name;
    out += '=';
    out += std::visit(AttrText{}, attr);
  }
  return out + "}";
}

std::string format_double(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", v);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace lathe
