#include "loop/ranks/fingerprint.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "backend/cpu/isa.h"
#include "base/part.h"
#include "base/version.h"
#include "comm/measure_link.h"
#include "comm/text.h"
#include "io/hash.h"
#include "passes/bucket.h"
#include "passes/pass.h"
#include "rundir/open_run.h"

namespace lathe {
namespace {

// The same on all ranks: a part, if anything is, is what one has of it.
std::string whole_type(const Launch& l, const Graph& g) {
  return to_string(g.type(l.node.is("all_gather") ? l.node.outputs[0] : l.node.inputs[0]));
}

// Of the file that runs: two builds may have one version.
std::string hash_of_program() {
  io::PosixFs fs;
  try {
    return io::digest_file(fs, "/proc/self/exe").xxh3;
  } catch (const UserError&) {
    return "unknown";
  }
}

// Of up to 32 samples, evenly spread; "": there is no such set.
std::string hash_of_samples(const data::Source* source) {
  if (!source) return "";
  std::vector<std::vector<std::byte>> fields;
  std::vector<std::span<std::byte>> spans;
  for (const data::Field& f : source->fields()) fields.emplace_back(static_cast<size_t>(f.type.bytes()));
  for (auto& f : fields) spans.emplace_back(f);
  io::Hasher hasher;
  const int64_t count = std::min<int64_t>(32, source->size());
  for (int64_t i = 0; i < count; ++i) {
    source->read(part_of(source->size(), count, i).first, spans);
    for (const auto& f : fields) hasher.update(f);
  }
  return hasher.hex();
}

// Those that the recipe.toml of a run has; 0: it has none. What is wrong with the file is said where it is compared
// with the recipe.
int64_t bucket_of_run(const std::string& run) {
  try {
    return load_run_recipe(run, {}).passes.get<BucketOptions>().bytes.bytes;
  } catch (const UserError&) {
    return 0;
  }
}

}  // namespace

int64_t collectives_in(const Program& p) {
  return std::ranges::count_if(p.launches, [](const Launch& l) { return l.node.op->is_collective(); });
}

double flops_in(const Program& p) {
  double flops = 0;
  for (const Launch& l : p.launches) flops += l.flops();
  return flops;
}

std::vector<comm::Item> fingerprint(const Compiled& c, const Dataset& data, const PipelineOptions& passes) {
  std::vector<comm::Item> items{
      {"version of lathe", kVersion},
      {"hash of the program", hash_of_program()},
      {"instruction set (LATHE_ISA)", std::string(cpu::active_isa())},
      {"number of ranks", std::to_string(c.mesh.ranks)},
      {"device", c.recipe.device.name},
      {"passes left out or added", fmt::format("{}", fmt::join(pipeline_changes(passes), " "))}};
  Recipe r = c.recipe;
  r.device.threads = 0;  // of each rank's own machine
  r.data.threads = 1;
  std::istringstream lines(to_toml(r));
  for (std::string line, section; std::getline(lines, line);) {
    if (line.starts_with('[')) section = ", " + line;
    if (!line.empty()) items.push_back({"the recipe" + section, line});
  }
  items.push_back(
      {"data", fmt::format("{} train, {} validation, {} test samples of {}, labels {}, {} classes, held out "
                           "{:016x}",
                           c.data.train, c.data.validation, c.data.test, to_string(c.data.sample),
                           to_string(c.data.label), c.data.classes, data.held_out)});
  for (const data::Split split : {data::Split::train, data::Split::validation, data::Split::test})
    items.push_back({fmt::format("samples of the {} set", data::to_string(split)), hash_of_samples(data.of(split))});
  for (const Program& p : c.set.programs) {
    int64_t number = 0;
    for (const Launch& l : p.launches)
      if (l.node.op->is_collective())
        items.push_back({fmt::format("collective {} of {}", ++number, p.name),
                         fmt::format("{} of {} {}", l.node.op->name(), l.node.origin, whole_type(l, p.graph))});
  }
  return items;
}

void check_fingerprint(comm::Control& control, const Compiled& c, const Dataset& data, const PipelineOptions& passes,
                       std::span<const comm::Item> more) {
  std::vector<comm::Item> items = fingerprint(c, data, passes);
  items.insert(items.end(), more.begin(), more.end());
  const std::string difference = control.agree(items);
  if (difference.empty()) return;
  control.fail_alike(difference);
  throw UserError(difference, Exit::bad_recipe);
}

CompileOptions rank_options(CompileOptions o, const Recipe& r, comm::Group& group, const std::string& run) {
  o.mesh = {group.size(), group.rank()};
  if (group.size() > 1 && !o.link) {
    const comm::LinkRates rates = comm::measure_link(group);
    o.link = Link{rates.latency, rates.bandwidth};
  }
  if (group.size() > 1) group.set_flow(comm::flow_of({o.link->latency, o.link->bandwidth}));
  const auto written = r.origins.keys.find("parallel.bucket");
  const bool anew = run.empty() || (written != r.origins.keys.end() && written->second.set);
  const std::string kept = group.rank() == 0 && !anew ? std::to_string(bucket_of_run(run)) : "0";
  o.bucket = std::strtoll(comm::broadcast_text(group, kept).c_str(), nullptr, 10);
  return o;
}

}  // namespace lathe
