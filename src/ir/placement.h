// Mesh: the ranks that a step is divided among. Placement: how a value of the whole step lies on them. An op says with
// rows of placements how it may be divided (OpDef::placements); passes/partition.h does it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/part.h"

namespace lathe {

struct Mesh {     // All ranks, and one of them.
  int ranks = 1;  // of a run
  int rank = 0;   // whose graphs are made
  friend bool operator==(const Mesh&, const Mesh&) = default;
};

struct Placement {             // How a value lies on the ranks.
  enum class Kind : uint8_t {  // In one of three ways.
    replicated,                // every rank has the value
    split,                     // every rank has a part of it, along an axis
    partial,                   // the value is the sum of what the ranks have
  };
  Kind kind = Kind::replicated;  // which
  int axis = 0;                  // of `split`

  bool is_replicated() const { return kind == Kind::replicated; }         // every rank has the value
  bool is_split() const { return kind == Kind::split; }                   // every rank has a part
  bool is_partial() const { return kind == Kind::partial; }               // the value is a sum over ranks
  friend auto operator<=>(const Placement&, const Placement&) = default;  // in any order
};
inline constexpr Placement kReplicated{};                                                    // see Placement::Kind
inline constexpr Placement kPartial{Placement::Kind::partial, 0};                            // see Placement::Kind
inline constexpr Placement split_along(int axis) { return {Placement::Kind::split, axis}; }  // see Placement::Kind
std::string to_string(Placement);                                                            // "B", "S(0)", "P"

using Placements = std::vector<Placement>;  // of several values

// If the inputs lie like `in`, the op on what a rank has gives outputs that lie like `out`.
struct PlacementRow {
  Placements in, out;  // of inputs, of outputs
};
using PlacementRows = std::vector<PlacementRow>;  // ways to divide an op

// Appends the row in which all inputs and outputs are split along one axis, for each of `ndim` axes.
void add_split_rows(PlacementRows&, size_t inputs, int ndim);
// Appends the row of one partial input, the others replicated, for each of the inputs: the op is linear in each.
void add_linear_rows(PlacementRows&, size_t inputs);

}  // namespace lathe
