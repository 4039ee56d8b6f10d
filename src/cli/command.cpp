#include "cli/command.h"

namespace lathe::cli {

CLI::Validator not_empty() {
  return CLI::Validator([](std::string& text) { return std::string(text.empty() ? "expected a value, got \"\"" : ""); },
                        "");
}

void RecipeOptions::add_to(CLI::App& app) {
  app.add_option("RECIPE", recipe,
                 "Recipe file, or the name of a built-in one (see `lathe recipes`); default: fashion_mnist")
      ->check(not_empty());
  app.add_option("--set", sets, "Override a recipe key: --set train.epochs=3; may be repeated")
      ->type_name("KEY=VALUE")
      ->take_all()
      ->expected(1);
  app.add_option("--device", device, "cpu, ref, opencl[:N] or cuda[:N]; the same as --set device=...")->check(not_empty());
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
