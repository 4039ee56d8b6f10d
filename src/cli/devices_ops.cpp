#include "cli/devices_ops.h"

#include <lathe/lathe.h>

#include <algorithm>
#include <map>
#include <set>

namespace lathe::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr DType kFloatTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16};

// The sample with its inputs of one type in another.
Sample in_type(Sample s, DType from, DType to) {
  for (SampleInput& in : s.inputs)
    if (in.type.dtype == from) in.type.dtype = to;
  return s;
}

bool has_type(const Sample& s, DType t) {
  return std::ranges::any_of(s.inputs, [&](const SampleInput& in) { return in.type.dtype == t; });
}

// What one backend does with one op.
struct Support {
  std::map<std::string, std::set<DType>> kernels;            // by name
  std::map<std::string, std::string> otherwise;              // what takes over, by kernel
  std::map<std::string, std::set<DType>> expanded, missing;  // by reason
  std::set<DType> types;

  void try_sample(const Backend& backend, const Target& target, const OpDef& op, const Sample& s, DType type) {
    Node node{&op, s.params, {}, {}, "", Role::model};
    Types in, out;
    for (const SampleInput& x : s.inputs) in.push_back(x.type);
    try {
      out = op.infer(in, s.params.get());
    } catch (const UserError&) {
      return;  // parameters that name a type do not fit the sample in another one
    }
    // Samples of 16 bits may have an f32 among their inputs: the first float names the type.
    const auto first = std::ranges::find_if(in, [](const TensorType& t) { return is_float(t.dtype); });
    if (first != in.end())
      type = first->dtype;
    else if (in.empty() && !out.empty())
      type = out[0].dtype;
    if (std::ranges::find(target.dtypes, type) == target.dtypes.end()) {
      missing[fmt::format("the device has no {}", to_string(type))].insert(type);
      return;
    }
    const Site site{node, in, out, target};
    std::string reasons;
    for (const KernelTable::Row& row : backend.kernels().candidates(op.name())) {
      const std::string why = row.candidate.accepts(site);
      if (why.empty()) {
        kernels[std::string(row.candidate.name)].insert(type);
        if (!row.candidate.otherwise.empty()) otherwise[std::string(row.candidate.name)] = row.candidate.otherwise;
        types.insert(type);
        return;
      }
      reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", row.candidate.name, why);
    }
    if (op.is_composite()) {
      expanded[reasons.empty() ? "no kernel" : reasons].insert(type);
      types.insert(type);
    } else {
      missing[reasons.empty() ? "no kernel" : reasons].insert(type);
    }
  }
};

Json names_of(const std::set<DType>& types) {
  Json out = Json::array();
  for (const DType t : types) out.push_back(to_string(t));
  return out;
}

Json to_json(const Support& s) {
  Json out{{"types", names_of(s.types)},
           {"kernels", Json::object()},
           {"otherwise", s.otherwise},
           {"expanded", Json::object()},
           {"missing", Json::object()}};
  for (const auto& [kernel, types] : s.kernels) out["kernels"][kernel] = names_of(types);
  for (const auto& [reason, types] : s.expanded) out["expanded"][reason] = names_of(types);
  for (const auto& [reason, types] : s.missing) out["missing"][reason] = names_of(types);
  return out;
}

std::string joined(const Json& types) {
  const std::vector<std::string> names = types;
  return fmt::format("{}", fmt::join(names, " "));
}

}  // namespace

Json op_matrix() {
  Json ops = Json::array();
  for (const OpDef* op : registry().all()) {
    if (!op->runs_alone()) continue;
    Json row{{"op", op->name()}, {"composite", op->is_composite()}};
    for (const Backend* b : backends()) {
      // Where there is no device: as one of its kind would be, with all of its libraries.
      const Target target = b->target({b->devices().empty() ? -1 : 0, 0});
      Support support;
      if (!op->has(kView))
        for (const Sample& s : op->samples()) {
          if (has_type(s, DType::f16))
            support.try_sample(*b, target, *op, in_type(s, DType::f16, DType::bf16), DType::bf16);
          if (!has_type(s, DType::f32)) {
            support.try_sample(*b, target, *op, s, s.inputs.empty() ? DType::f32 : s.inputs[0].type.dtype);
            continue;
          }
          for (const DType t : kFloatTypes) support.try_sample(*b, target, *op, in_type(s, DType::f32, t), t);
        }
      row[std::string(b->name())] = to_json(support);
    }
    ops.push_back(std::move(row));
  }
  return ops;
}

void print_op_matrix(const Json& ops) {
  for (const Backend* b : backends())
    if (b->devices().empty())
      fmt::print("{} is not here ({}): its rows are those of any device with all libraries\n", b->name(),
                 b->unavailable_reason());
  fmt::print("else: takes over where a library turns out to have nothing for a node on the card, in the same memory\n");
  fmt::print("{:<20} {:<7} {:<22} {}\n", "op", "device", "types", "kernels");
  for (const Json& row : ops)
    for (const Backend* b : backends()) {
      const Json& cell = row[std::string(b->name())];
      std::vector<std::string> parts;
      for (const auto& [kernel, types] : cell["kernels"].items())
        parts.push_back(fmt::format("{}{}{}", kernel, types == cell["types"] ? "" : fmt::format(" [{}]", joined(types)),
                                    cell["otherwise"].contains(kernel)
                                        ? fmt::format(" (else {})", cell["otherwise"][kernel].get<std::string>())
                                        : ""));
      for (const auto& [reason, types] : cell["expanded"].items())
        parts.push_back(types == cell["types"] ? fmt::format("expanded into other ops ({})", reason)
                                               : fmt::format("expanded [{}] ({})", joined(types), reason));
      for (const auto& [reason, types] : cell["missing"].items())
        parts.push_back(fmt::format("not {}: {}", joined(types), reason));
      if (parts.empty()) parts.push_back("a view: no kernel needed");
      fmt::print("{:<20} {:<7} {:<22} {}\n", row["op"].get<std::string>(), b->name(),
                 cell["types"].empty() && cell["missing"].empty() ? "all" : joined(cell["types"]),
                 fmt::join(parts, ", "));
    }
}

}  // namespace lathe::cli
