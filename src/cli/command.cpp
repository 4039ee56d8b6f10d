#include "cli/command.h"

#include <charconv>
#include <system_error>

namespace lathe::cli {

CLI::Validator not_empty() {
  return CLI::Validator([](std::string& text) { return std::string(text.empty() ? "expected a value, got \"\"" : ""); },
                        "");
}

CLI::Validator whole_number(int64_t min, int64_t max) {
  const auto problem = [=](const std::string& text) -> std::string {
    int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc{} && stop == end && value >= min && value <= max) return "";
    return fmt::format("expected a whole number from {} to {}, got {}", min, max, text);
  };
  const bool bounded = max < std::numeric_limits<int64_t>::max();
  return CLI::Validator(problem, bounded ? fmt::format("{} to {}", min, max) : "");
}

CLI::Option* add_device_option(CLI::App& app, std::string& device, const std::string& about) {
  const auto problem = [](const std::string& text) -> std::string {
    if (text.empty()) return "expected a value, got \"\"";
    if (is_device_name(text)) return "";
    return fmt::format("expected auto, cpu, ref, opencl, opencl:N, cuda or cuda:N, got \"{}\"; here are: {}", text,
                       devices_here());
  };
  return app.add_option("--device", device, "auto, cpu, ref, opencl[:N] or cuda[:N]; " + about)
      ->type_name("NAME")
      ->check(CLI::Validator(problem, ""));
}

int64_t parse_size_option(const char* option, const std::string& text) {
  const auto size = parse_size(text);
  if (!size || size->bytes <= 0)
    throw UserError(fmt::format("{}: expected a size like 16GiB, got \"{}\"", option, text), Exit::usage);
  return size->bytes;
}

void RecipeOptions::add_to(CLI::App& app) {
  app.add_option("RECIPE", recipe,
                 "Recipe file, or the name of a built-in one (see `lathe recipes`); default: fashion_mnist")
      ->check(not_empty());
  app.add_option("--set", sets, "Override a recipe key: --set train.epochs=3; may be repeated")
      ->type_name("KEY=VALUE")
      ->take_all()
      ->expected(1);
  add_device_option(app, device, "the same as --set device=...");
}

std::vector<std::string> RecipeOptions::all_sets() const {
  std::vector<std::string> out = sets;
  if (!device.empty()) out.push_back("device=" + device);
  return out;
}

Recipe RecipeOptions::load() const {
  return load_recipe(recipe.empty() ? std::string(kDefaultRecipe) : recipe, all_sets());
}

}  // namespace lathe::cli
