#include "ir/placement.h"

#include <fmt/format.h>

namespace lathe {

std::string to_string(Placement p) {
  if (!p.is_split()) return p.is_partial() ? "P" : "B";
  if (p.units == 0) return fmt::format("S({})", p.axis);
  return fmt::format("S({} of {}{})", p.axis, p.units, p.of_state ? "" : " samples");
}

Part part_on(int64_t size, int64_t units, int64_t ranks, int64_t rank) {
  const Part own = part_of(units, ranks, rank);
  const int64_t each = size / units;
  return {own.first * each, own.last * each};
}

TensorType part_type(const TensorType& whole, Placement p, const Mesh& mesh) {
  if (!p.is_split()) return whole;
  const Part part = part_on(whole.shape[p.axis], p.units, mesh.ranks, mesh.rank);
  return {whole.dtype, whole.shape.with_dim(p.axis, part.size())};
}

bool can_split(const TensorType& t, Placement p) {
  return !p.is_split() ||
         (p.units > 0 && p.axis < t.shape.ndim() && t.shape[p.axis] > 0 && t.shape[p.axis] % p.units == 0);
}

PlacementRow with_units_of(Placement split, PlacementRow row) {
  for (Placements* side : {&row.in, &row.out})
    for (Placement& p : *side)
      if (p.is_split()) p = split_along(p.axis, split.units, split.of_state);
  return row;
}

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
