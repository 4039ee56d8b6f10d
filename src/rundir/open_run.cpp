#include "rundir/open_run.h"

#include <algorithm>
#include <iterator>
#include <sstream>

#include "base/warning.h"
#include "io/checkpoint.h"
#include "rundir/run_dir.h"
#include "session/state.h"

namespace lathe {
namespace {

void check_overrides(const std::string& run, const Recipe& own, const Recipe& changed) {
  for (const RecipeDifference& d : diff(own, changed))
    if (changes_meaning(own, d.key) || changes_meaning(changed, d.key))
      throw UserError(fmt::format("--set {}: the net of {} was trained for {}, got {}; train another run for that",
                                  d.key, run, d.a, d.b),
                      Exit::bad_recipe);
}

}  // namespace

Recipe load_run_recipe(const std::string& run, const std::vector<std::string>& sets) {
  io::PosixFs fs;
  const std::string path = io::join_path(run, "recipe.toml");
  if (!io::info_at(fs, path))
    throw UserError(
        fmt::format("{}: not a run directory (no recipe.toml); `lathe train` prints the directory it makes", run),
        Exit::missing_input);
  const std::string text = read_text(fs, path);
  Recipe r = parse_recipe(text, path, sets);
  if (!sets.empty()) check_overrides(run, parse_recipe(text, path), r);
  return r;
}

namespace {

// Names of passes, "+" before those that were added; none where a checkpoint made by other means says nothing.
std::optional<std::vector<std::string>> pass_changes_of(const io::Manifest& manifest) {
  const auto passes = manifest.info.find("disabled_passes");
  if (passes == manifest.info.end()) return std::nullopt;
  std::istringstream names(passes->second);
  return std::vector<std::string>{std::istream_iterator<std::string>(names), {}};
}

std::string folder_of(const std::string& run, Which which) {
  return io::join_path(run, which == Which::best ? kBestFolder : kCheckpointFolder);
}

// A recipe.toml that was edited or emptied describes another network, or other data, than the checkpoint's.
void check_recipe_of(const std::string& run, const io::Manifest& manifest) {
  const auto changes = pass_changes_of(manifest);
  if (!changes || recipe_hash(load_run_recipe(run, {}), *changes) == manifest.recipe_hash) return;
  throw UserError(
      fmt::format("{}: is not the recipe that the checkpoint of step {} was trained with; put the original "
                  "back, or override single keys with --set",
                  io::join_path(run, "recipe.toml"), manifest.step));
}

}  // namespace

PipelineOptions passes_of_run(const std::string& run, Which which, PipelineOptions own) {
  io::PosixFs fs;
  io::Notes notes;  // open_run() says what is wrong with checkpoints
  const auto found = io::find_newest_valid(fs, folder_of(run, which), io::Verify::size, notes);
  if (!found) return own;
  const auto has = [&](std::string_view name) {
    return std::ranges::any_of(own.added, [&](const AddedPass& a) { return a.pass.name == name; });
  };
  for (const std::string& name : pass_changes_of(found->manifest).value_or(std::vector<std::string>{})) {
    if (!name.starts_with('+')) {
      if (std::ranges::find(pipeline(), name, &PassEntry::name) != pipeline().end()) own.disabled.push_back(name);
    } else if (!has(name.substr(1))) {
      warn(fmt::format("{}: was trained with the pass {} of a program; it is left out here", run, name.substr(1)));
    }
  }
  return own;
}

std::unique_ptr<Session> open_run(const std::string& run, const Compiled& c, Which which,
                                  std::unique_ptr<Device> device) {
  io::PosixFs fs;
  io::Notes notes;
  const bool best = which == Which::best;
  const auto found = io::find_newest_valid(fs, folder_of(run, which), io::Verify::full, notes);
  for (const std::string& n : notes) warn(n);
  if (!found)
    throw UserError(
        fmt::format("{}: no valid {}", run,
                    best ? "best checkpoint; training keeps one with checkpoint.best = true" : "checkpoint"),
        Exit::missing_input);
  check_recipe_of(run, found->manifest);
  auto session = open_session(c, std::move(device));
  session->load_files(found->path, Keep::model);
  return session;
}

std::optional<std::string> device_of_run(const std::string& run) {
  io::PosixFs fs;
  const std::string path = io::join_path(run, "recipe.toml");
  if (!io::info_at(fs, path)) return std::nullopt;
  std::string name = parse_recipe(read_text(fs, path), path).device.name;
  try {
    require_device(parse_device_name(name));
    return name;
  } catch (const DeviceError&) {
    return std::nullopt;
  }
}

}  // namespace lathe
