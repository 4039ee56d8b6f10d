// Attr: one op parameter in generic form. Printing, parsing, hashing and comparing of parameters all work on lists of
// Attrs, which OpDef derives from a parameter struct's `fields` (see op_def.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"

namespace lathe {

struct Graph;
using GraphPtr = std::shared_ptr<const Graph>;  // the body of a fused node

using Attr = std::variant<bool, int64_t, double, std::string, DType, Ints, GraphPtr>;  // A parameter's value.
using Attrs = std::vector<std::pair<std::string_view, Attr>>;                          // name and value

bool equal(const Attrs&, const Attrs&);                // names and values; bodies of fused nodes by structure
uint64_t hash(const Attrs&);                           // of equal lists the same
uint64_t hash_combine(uint64_t seed, uint64_t value);  // of a sequence of numbers
std::string to_string(const Attrs&);                   // "{axis=1, eps=1e-05}", or "" when empty
std::string format_double(double);  // shortest text that parses back to the same bits and is not an integer's text

}  // namespace lathe
