// Mesh: the ranks that a step is divided among. Placement: how a value of the whole step lies on them. An op says with
// rows of placements how it may be divided (OpDef::placements); passes/partition.h does it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/part.h"
#include "base/shape.h"

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
  // Of `split`: how many units are divided (base/part.h); the axis holds the same number of elements for each. 0, in
  // rows of ops: as many as the inputs have.
  int64_t units = 0;
  bool of_state = false;  // units are elements of a state, else samples: never the same, whatever their number

  bool is_replicated() const { return kind == Kind::replicated; }         // every rank has the value
  bool is_split() const { return kind == Kind::split; }                   // every rank has a part
  bool is_partial() const { return kind == Kind::partial; }               // the value is a sum over ranks
  friend auto operator<=>(const Placement&, const Placement&) = default;  // in any order
};
inline constexpr Placement kReplicated{};                                                     // see Placement::Kind
inline constexpr Placement kPartial{Placement::Kind::partial, 0, 0, false};                   // see Placement::Kind
inline constexpr Placement split_along(int axis, int64_t units = 0, bool of_state = false) {  // see Placement::Kind
  return {Placement::Kind::split, axis, units, of_state};
}
std::string to_string(Placement);  // "B", "S(0)", "S(0 of 8 samples)", "S(1 of 512)", "P"
// The elements that a rank has of an axis of `size` elements that is split into so many units.
Part part_on(int64_t size, int64_t units, int64_t ranks, int64_t rank);
// f(place in the whole, place in the part, elements) for each run of elements that a part of the axis has, in order.
template <class F>
void for_each_run(const Shape& whole, int axis, const Part& part, F&& f) {
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < whole.ndim(); ++i)
    if (i != axis) (i < axis ? outer : inner) *= whole[i];
  for (int64_t i = 0; i < outer; ++i)
    f((i * whole[axis] + part.first) * inner, i * part.size() * inner, part.size() * inner);
}
TensorType part_type(const TensorType& whole, Placement, const Mesh&);  // what mesh.rank has of a value
bool can_split(const TensorType&, Placement);  // the axis holds a multiple of the units; true unless split

using Placements = std::vector<Placement>;  // of several values

// If the inputs lie like `in`, the op on what a rank has gives outputs that lie like `out`.
struct PlacementRow {
  Placements in, out;  // of inputs, of outputs
};
using PlacementRows = std::vector<PlacementRow>;            // ways to divide an op
PlacementRow with_units_of(Placement split, PlacementRow);  // those of all splits in the row

// Appends the row in which all inputs and outputs are split along one axis, for each of `ndim` axes.
void add_split_rows(PlacementRows&, size_t inputs, int ndim);
// Appends the row of one partial input, the others replicated, for each of the inputs: the op is linear in each.
void add_linear_rows(PlacementRows&, size_t inputs);

}  // namespace lathe
