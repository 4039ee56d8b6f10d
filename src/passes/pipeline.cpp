// The pipeline: read it aloud. And the driver, which does for every pass what no pass does itself: skip, verify, time.
#include <algorithm>

#include "base/did_you_mean.h"
#include "base/stopwatch.h"
#include "passes/autodiff.h"
#include "passes/canonicalize.h"
#include "passes/cse.h"
#include "passes/dce.h"
#include "passes/expand.h"
#include "passes/fold.h"
#include "passes/fuse.h"
#include "passes/layout.h"
#include "passes/pass.h"
#include "passes/precision.h"

namespace lathe {
namespace {

// Level::lowered also demands state reads before state writes, which is the schedule's to arrange: the plan checks it.
constexpr PassEntry kPipeline[] = {
    // Before autodiff, so that gradients of products are products of the same type.
    {"precision", precision, Level::tensor},
    {"autodiff", autodiff, Level::tensor, true},
    // Composites have vjps of their own, cheaper than those of their expansions.
    {"expand", expand, Level::tensor, true},
    // The cotangent 1 and the zeros of absent cotangents meet their readers.
    {"fold", fold, Level::tensor},
    {"layout", layout, Level::tensor},
    // Rules that ask for the constants 0 and 1, and for reshapes that layout left.
    {"canonicalize", canonicalize, Level::tensor},
    // Equal values have one form now.
    {"cse", cse, Level::tensor},
    // Dead readers would keep fuse from merging.
    {"dce", dce, Level::tensor},
    {"fuse", fuse, Level::tensor},
};

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

// What a pass must leave to those who plan and run the graph: the outputs in their order. Inputs may go, none may come.
void check_ports(const Graph& before, const Graph& after, std::string_view pass, MadeBy made_by) {
  const auto fail = [&](const std::string& what) {
    const std::string text = fmt::format("pass {}, graph \"{}\": {}", pass, before.name, what);
    if (made_by == MadeBy::caller) throw UserError(text);
    throw InternalError(text);
  };
  for (size_t i = 0; i < before.outputs.size(); ++i) {
    const Output& o = before.outputs[i];
    if (i >= after.outputs.size() || after.outputs[i].name != o.name || after.outputs[i].kind != o.kind ||
        after.type(after.outputs[i].value) != before.type(o.value))
      fail(fmt::format("expected to keep its outputs, got {} of {} with \"{}\" lost, moved or of another type",
                       after.outputs.size(), before.outputs.size(), o.name));
  }
  if (after.outputs.size() > before.outputs.size())
    fail(fmt::format("expected to keep its outputs, got a new one named \"{}\"",
                     after.outputs[before.outputs.size()].name));
  size_t at = 0;
  for (const Input& in : after.inputs) {
    const auto same = [&](const Input& old) {
      return old.name == in.name && old.kind == in.kind && before.type(old.value) == after.type(in.value);
    };
    while (at < before.inputs.size() && !same(before.inputs[at])) ++at;
    if (at++ == before.inputs.size())
      fail(fmt::format("expected inputs of before in their order, got \"{}\", new, moved or of another type", in.name));
  }
}

bool is_disabled(const PipelineOptions& options, const PassEntry& pass) {
  return std::ranges::find(options.disabled, pass.name) != options.disabled.end();
}

}  // namespace

std::span<const PassEntry> pipeline() { return kPipeline; }

Graph run_pipeline(Graph g, const PassContext& context, const PipelineOptions& options,
                   std::vector<PassReport>* reports) {
  return run_passes(pipeline_with(options), std::move(g), context, options, reports);
}

std::vector<PassEntry> pipeline_with(const PipelineOptions& options) {
  std::vector<PassEntry> passes(std::begin(kPipeline), std::end(kPipeline));
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

Graph run_passes(std::span<const PassEntry> passes, Graph g, const PassContext& context, const PipelineOptions& options,
                 std::vector<PassReport>* reports) {
  for (const std::string& name : options.disabled)
    if (find_pass(passes, name).required)
      throw UserError(fmt::format("pass \"{}\" cannot be disabled: without it the graph cannot be planned", name),
                      Exit::usage);
  if (!options.stop_after.empty()) find_pass(passes, options.stop_after);
  if (options.verify) verify(g, Level::tensor, "none (the input of the pipeline)", MadeBy::caller);

  for (const PassEntry& pass : passes) {
    PassReport report{.name = std::string(pass.name)};
    if (is_disabled(options, pass)) {
      report.disabled = true;
    } else {
      const Graph before = g;
      const Stopwatch start;
      g = pass.run(std::move(g), context);
      report.seconds = start.seconds();
      // First of all: nothing else can look at a graph with values that do not exist.
      const MadeBy made_by = is_added(options, pass) ? MadeBy::caller : MadeBy::lathe;
      if (options.verify || made_by == MadeBy::caller) {
        verify(g, pass.level, pass.name, made_by);
        check_ports(before, g, pass.name, made_by);
      }
      report.changed = !structurally_equal(before, g);
      if (options.on_pass) options.on_pass(pass, before, g);
    }
    report.nodes = g.nodes.size();
    if (reports) reports->push_back(std::move(report));
    if (pass.name == options.stop_after) break;
  }
  return g;
}

}  // namespace lathe
