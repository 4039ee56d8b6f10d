// The pipeline: the techniques (techniques/table.h), then what makes a step fit to be planned. And the driver, which
// does for every pass what no pass does itself: skip, check (pass_checks.h), time.
#include <algorithm>

#include "base/did_you_mean.h"
#include "base/stopwatch.h"
#include "passes/autodiff.h"
#include "passes/bucket.h"
#include "passes/canonicalize.h"
#include "passes/cse.h"
#include "passes/dce.h"
#include "passes/expand.h"
#include "passes/fold.h"
#include "passes/fuse/fuse.h"
#include "passes/layout.h"
#include "passes/partition/blocks.h"
#include "passes/partition/partition.h"
#include "passes/partition/shard_state.h"
#include "passes/partition/vote.h"
#include "passes/pass.h"
#include "passes/pass_checks.h"
#include "passes/precision.h"
#include "passes/techniques/gradients.h"
#include "passes/techniques/table.h"

namespace lathe {
namespace {

// Level::lowered also demands state reads before state writes, which is the schedule's to arrange: the plan checks it.
constexpr PassEntry kLowering[] = {
    // Before autodiff, so that gradients of products are products of the same type.
    {"precision", each_graph<precision>, Level::tensor, false, kTouchesNothing, Promise::changes,
     kOptions<PrecisionOptions>},
    {"autodiff", each_graph<autodiff>, Level::tensor, true},
    // Composites have vjps of their own, cheaper than those of their expansions.
    {"expand", each_graph<expand>, Level::tensor, true},
    // Techniques have added their state.
    {"shard_state", shard_state, Level::tensor, false, kTouchesState, Promise::preserves, kOptions<ShardOptions>},
    // Forward and backward alike, while each op stands for itself.
    {"partition", partition, Level::tensor, true, kTouchesState | kTouchesPorts, Promise::preserves,
     kOptions<SameBitsOptions>},
    // The last of the step's collectives.
    {"vote", vote, Level::tensor, true, kTouchesPorts},
    // Graphs of ranks have the same nodes in the same order as yet: later passes look at sizes.
    {"bucket", bucket, Level::tensor, false, kTouchesOrder, Promise::preserves, kOptions<BucketOptions>},
    // The cotangent 1 and the zeros of absent cotangents meet their readers.
    {"fold", each_graph<fold>, Level::tensor},
    {"layout", each_graph<layout>, Level::tensor},
    // Rules that ask for the constants 0 and 1, and for reshapes that layout left.
    {"canonicalize", each_graph<canonicalize>, Level::tensor},
    // Equal values have one form now.
    {"cse", each_graph<cse>, Level::tensor},
    // Dead readers would keep fuse from merging.
    {"dce", each_graph<dce>, Level::tensor},
    {"fuse", each_graph<fuse>, Level::tensor},
};

std::vector<OptionsRow>& registered() {
  static std::vector<OptionsRow> all;
  return all;
}

const PassEntry& find_pass(std::span<const PassEntry> passes, std::string_view name) {
  std::vector<std::string_view> names;
  for (const PassEntry& p : passes) {
    if (p.name == name) return p;
    names.push_back(p.name);
  }
  const auto near = did_you_mean(name, names);
  throw UserError(fmt::format("no pass is named \"{}\"; {}known: {}", name,
                              near ? fmt::format("did you mean \"{}\"? ", *near) : "", fmt::join(names, ", ")),
                  Exit::usage);
}

bool is_added(const PipelineOptions& options, const PassEntry& pass) {
  return std::ranges::any_of(options.added, [&](const AddedPass& a) { return a.pass.name == pass.name; });
}

struct Refusal : RuleReport {  // The first broken rule is an error.
  void report(std::span<const std::string_view> keys, const std::string& message) override {
    throw UserError(fmt::format("{}: {}", keys[0], message));
  }
};

// Options that a program set are held to what their fields and rules say, as those of recipes are.
void check_options(std::span<const PassEntry> passes, const PassOptions& options) {
  Refusal refusal;
  for (const PassEntry& pass : passes) {
    if (!pass.options.schema) continue;
    const Schema& schema = pass.options.schema();
    for (const Field& f : schema.fields) {
      const FieldPtr at = options.at(schema, f);
      if (const auto bad = check_value(at, f.allowed))
        throw UserError(
            fmt::format("pass {}: {}: expected {}, got {}", pass.name, f.name, allowed_text(at, f.allowed), bad->got));
    }
    if (pass.options.check) pass.options.check(options, refusal);
  }
}

// It has nothing to do: what it would return is what it would get.
bool is_off(const PassEntry& pass, const PassOptions& options) {
  return pass.options.is_on && !pass.options.is_on(options);
}

bool is_disabled(const PipelineOptions& options, const PassEntry& pass) {
  return std::ranges::find(options.disabled, pass.name) != options.disabled.end();
}

// Of a set that was checked.
StepSet drive(std::span<const PassEntry> passes, StepSet set, const PassContext& context,
              const PipelineOptions& options, std::vector<PassReport>* reports) {
  for (const std::string& name : options.disabled)
    if (find_pass(passes, name).required)
      throw UserError(fmt::format("pass \"{}\" cannot be disabled: the plan or the loop relies on what it does", name),
                      Exit::usage);
  if (!options.stop_after.empty()) find_pass(passes, options.stop_after);
  check_options(passes, context.options);
  PassChecks checks;
  uint64_t identity = reports ? identity_hash(set) : 0;
  for (const PassEntry& pass : passes) {
    PassReport report{.name = std::string(pass.name)};
    if (is_disabled(options, pass)) {
      report.disabled = true;
    } else if (is_off(pass, context.options)) {
      if (options.on_pass) options.on_pass(pass, set, set);
    } else {
      const MadeBy made_by = is_added(options, pass) ? MadeBy::caller : MadeBy::lathe;
      const bool checked = options.verify || made_by == MadeBy::caller;
      const StepSet before = options.on_pass ? set : StepSet();
      if (pass.options.is_on) check_marked(set, pass.name);
      if (checked) checks.before(pass, set);
      const Stopwatch start;
      set = pass.run(std::move(set), context);
      report.seconds = start.seconds();
      if (checked)
        checks.after(pass, set, made_by);
      else
        checks.forget();
      if (reports) {
        const uint64_t now = identity_hash(set);
        report.changed = now != identity;
        identity = now;
      }
      if (options.on_pass) options.on_pass(pass, before, set);
    }
    for (const Graph& g : set.graphs) report.nodes += g.nodes.size();
    if (reports) reports->push_back(std::move(report));
    if (pass.name == options.stop_after) break;
  }
  return set;
}

}  // namespace

std::span<const PassEntry> pipeline() {
  static const std::vector<PassEntry> all = [] {
    std::vector<PassEntry> rows(std::begin(kTechniques), std::end(kTechniques));
    rows.insert(rows.end(), std::begin(kLowering), std::end(kLowering));
    return rows;
  }();
  return all;
}

std::vector<OptionsRow> pass_options() {
  std::vector<OptionsRow> out;
  for (const PassEntry& pass : pipeline())
    if (pass.options.schema) out.push_back(pass.options);
  out.insert(out.end(), registered().begin(), registered().end());
  return out;
}

void register_options(const OptionsRow& row) {
  LATHE_USER_CHECK(row.schema, "options need a struct with fields");
  if (std::ranges::find(registered(), row.schema, &OptionsRow::schema) != registered().end()) return;
  for (const OptionsRow& other : pass_options())
    for (const Field& f : row.schema().fields)
      LATHE_USER_CHECK(!other.schema().find(f.name),
                       "options of a custom pass: the key \"{}\" is taken by another pass", f.name);
  registered().push_back(row);
}

StepSet run_pipeline(StepSet set, const PassContext& context, const PipelineOptions& options,
                     std::vector<PassReport>* reports) {
  if (options.verify) check_step_set(set);
  return drive(pipeline_with(options), std::move(set), context, options, reports);
}

Graph run_pipeline(Graph g, const PassContext& context, const PipelineOptions& options,
                   std::vector<PassReport>* reports) {
  StepSet set = run_passes(pipeline_with(options), set_of(std::move(g)), context, options, reports);
  LATHE_CHECK(set.graphs.size() == 1, "a graph became {}", set.graphs.size());
  return std::move(set.graphs[0]);
}

std::vector<PassEntry> pipeline_with(const PipelineOptions& options) {
  std::vector<PassEntry> passes(pipeline().begin(), pipeline().end());
  for (const AddedPass& a : options.added) {
    LATHE_USER_CHECK(!a.pass.name.empty() && a.pass.run, "an added pass needs a name and a function");
    LATHE_USER_CHECK(std::ranges::find(passes, a.pass.name, &PassEntry::name) == passes.end(),
                     "pass \"{}\": the name is taken", a.pass.name);
    const auto at = a.after.empty() ? 0 : &find_pass(passes, a.after) - passes.data() + 1;
    passes.insert(passes.begin() + at, a.pass);
  }
  return passes;
}

std::vector<std::string> pipeline_changes(const PipelineOptions& options) {
  std::vector<std::string> out = options.disabled;
  for (const AddedPass& a : options.added) out.push_back("+" + std::string(a.pass.name));
  std::ranges::sort(out);
  return out;
}

StepSet run_passes(std::span<const PassEntry> passes, StepSet set, const PassContext& context,
                   const PipelineOptions& options, std::vector<PassReport>* reports) {
  if (options.verify) check_input(set);
  return drive(passes, std::move(set), context, options, reports);
}

}  // namespace lathe
