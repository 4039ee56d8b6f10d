#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace lathe::cli {

void add_recipes(CLI::App& app, int&) {
  struct Options {
    std::string show;
    bool keys = false, families = false, layers = false, json = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* cmd = app.add_subcommand("recipes", "List the built-in recipes, show one, or explain the keys");
  auto* name = cmd->add_option("NAME", o->show, "Print this recipe, to copy and change")->check(not_empty());
  auto* keys =
      cmd->add_flag("--keys", o->keys, "All recipe keys with defaults and meanings, as Markdown")->excludes(name);
  auto* layers = cmd->add_flag("--layers", o->layers, "The layers of [[model.layers]] and their keys, as Markdown")
                     ->excludes(name)
                     ->excludes(keys);
  auto* families = cmd->add_flag("--families", o->families, "The families of networks and their keys, as Markdown")
                       ->excludes(name)
                       ->excludes(keys)
                       ->excludes(layers);
  cmd->add_flag("--json", o->json, "Print the list as JSON")
      ->excludes(name)
      ->excludes(keys)
      ->excludes(layers)
      ->excludes(families);
  cmd->footer("Example: lathe recipes fashion_mnist > mine.toml && lathe train mine.toml");
  cmd->callback([o] {
    if (o->keys) {
      fmt::print("{}", recipe_reference());
      return;
    }
    if (o->layers) {
      fmt::print("{}", layer_reference());
      return;
    }
    if (o->families) {
      fmt::print("{}", family_reference());
      return;
    }
    if (!o->show.empty()) {
      for (const BuiltinRecipe& r : builtin_recipes())
        if (r.name == o->show) {
          fmt::print("{}", r.text);
          return;
        }
      load_recipe(o->show);  // the error of an unknown name
      throw UserError(fmt::format("{}: a recipe file, not the name of a built-in recipe", o->show),
                      Exit::missing_input);
    }
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const BuiltinRecipe& r : builtin_recipes()) {
      if (o->json)
        list.push_back({{"name", r.name}, {"summary", recipe_summary(r.text)}});
      else
        fmt::print("  {:<20} {}{}\n", r.name, recipe_summary(r.text), r.name == kDefaultRecipe ? " (default)" : "");
    }
    if (o->json) fmt::print("{}\n", list.dump(2));
  });
}

}  // namespace lathe::cli
