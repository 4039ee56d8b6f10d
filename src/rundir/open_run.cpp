#include "rundir/open_run.h"

#include <algorithm>
#include <iterator>
#include <sstream>

#include "base/warning.h"
#include "io/checkpoint.h"
#include "nn/families/model.h"
#include "rundir/run_dir.h"
#include "session/state.h"

namespace lathe {
namespace {

// With another value of one of these the outputs of the net would be read as what they are not.
constexpr std::string_view kMeaningOfOutputs[] = {
    "data.target", "data.label", "data.ignore", "data.classes", "data.target_mean", "data.target_scale", "train.loss"};

void check_overrides(const std::string& run, const Recipe& own, const Recipe& changed) {
  for (const RecipeDifference& d : diff(own, changed))
    if (std::ranges::find(kMeaningOfOutputs, d.key) != std::end(kMeaningOfOutputs))
      throw UserError(fmt::format("--set {}: the net of {} was trained for {}, got {}; train another run for that",
                                  d.key, run, d.a, d.b),
                      Exit::bad_recipe);
}

// The lines of [model] in a recipe as to_toml writes it; empty: there are none.
std::string_view model_section(std::string_view text) {
  const size_t begin = text.find("\n[model]\n");
  if (begin == text.npos) return {};
  size_t end = text.find("\n[", begin + 1);
  while (end != text.npos && (text.substr(end).starts_with("\n[model.") || text.substr(end).starts_with("\n[[model.")))
    end = text.find("\n[", end + 1);
  return text.substr(begin, end == text.npos ? text.npos : end - begin);
}

// Its model.family, if this program has none of that name.
std::optional<std::string> foreign_family(std::string_view text) {
  constexpr std::string_view kKey = "\nfamily = \"";
  const std::string_view model = model_section(text);
  const size_t key = model.find(kKey);
  const size_t begin = key + kKey.size(), end = key == model.npos ? model.npos : model.find('"', begin);
  if (end == model.npos) return {};
  const std::string name(model.substr(begin, end - begin));
  const auto known = model_families();
  if (std::ranges::find(known, name, &ModelFamily::name) != known.end()) return {};
  return name;
}

[[noreturn]] void refuse_foreign(const std::string& path, const std::string& family) {
  throw UserError(fmt::format("{}: model.family: the run was made by a program with a family of its own, \"{}\" "
                              "(register_family, docs/api.md); only such a program can open it",
                              path, family),
                  Exit::bad_recipe);
}

}  // namespace

Recipe parse_foreign_recipe(const std::string& text, const std::string& path, bool& foreign) {
  const auto family = foreign_family(text);
  foreign = family.has_value();
  if (!family) return parse_recipe(text, path);
  // With any family that is here, and without the keys of [model]: what they mean is known to the program alone.
  const std::string_view model = model_section(text);
  const auto at = static_cast<size_t>(model.data() - text.data());
  for (const char* stand_in : {"mlp", "unet", "gpt"}) {
    try {
      std::string known = text;
      known.replace(at, model.size(), fmt::format("\n[model]\nfamily = \"{}\"", stand_in));
      Recipe r = parse_recipe(known, path);
      r.model.family = *family;
      return r;
    } catch (const UserError&) {
      // It does not fit the data.
    }
  }
  refuse_foreign(path, *family);
}

Recipe load_run_recipe(const std::string& run, const std::vector<std::string>& sets) {
  io::PosixFs fs;
  const std::string path = io::join_path(run, "recipe.toml");
  if (!io::info_at(fs, path))
    throw UserError(
        fmt::format("{}: not a run directory (no recipe.toml); `lathe train` prints the directory it makes", run),
        Exit::missing_input);
  const std::string text = read_text(fs, path);
  if (const auto family = foreign_family(text)) refuse_foreign(path, *family);
  Recipe r = parse_recipe(text, path, sets);
  if (!sets.empty()) check_overrides(run, parse_recipe(text, path), r);
  return r;
}

namespace {

// A recipe.toml that was edited or emptied describes another network, or other data, than the checkpoint's.
void check_recipe_of(const std::string& run, const io::Manifest& manifest) {
  const auto passes = manifest.info.find("disabled_passes");
  if (passes == manifest.info.end()) return;  // a checkpoint made by other means says nothing
  std::istringstream names(passes->second);
  const std::vector<std::string> disabled{std::istream_iterator<std::string>(names), {}};
  if (recipe_hash(load_run_recipe(run, {}), disabled) == manifest.recipe_hash) return;
  throw UserError(
      fmt::format("{}: is not the recipe that the checkpoint of step {} was trained with; put the original "
                  "back, or override single keys with --set",
                  io::join_path(run, "recipe.toml"), manifest.step));
}

}  // namespace

std::unique_ptr<Session> open_run(const std::string& run, const Compiled& c, Which which) {
  io::PosixFs fs;
  io::Notes notes;
  const bool best = which == Which::best;
  const auto found =
      io::find_newest_valid(fs, io::join_path(run, best ? kBestFolder : kCheckpointFolder), io::Verify::full, notes);
  for (const std::string& n : notes) warn(n);
  if (!found)
    throw UserError(
        fmt::format("{}: no valid {}", run,
                    best ? "best checkpoint; training keeps one with checkpoint.best = true" : "checkpoint"),
        Exit::missing_input);
  check_recipe_of(run, found->manifest);
  auto session = open_session(c);
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
