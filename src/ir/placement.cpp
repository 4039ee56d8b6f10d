#include "ir/placement.h"

#include <fmt/format.h>

namespace lathe {

std::string to_string(Placement p) { return p.is_split() ? fmt::format("S({})", p.axis) : p.is_partial() ? "P" : "B"; }

void add_split_rows(PlacementRows& rows, size_t inputs, int ndim) {
  for (int axis = 0; axis < ndim; ++axis) rows.push_back({Placements(inputs, split_along(axis)), {split_along(axis)}});
}

void add_linear_rows(PlacementRows& rows, size_t inputs) {
  for (size_t i = 0; i < inputs; ++i) {
    rows.push_back({Placements(inputs, kReplicated), {kPartial}});
    rows.back().in[i] = kPartial;
  }
}

}  // namespace lathe
