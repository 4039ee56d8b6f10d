// libFuzzer harness: any bytes are a recipe or a bad-recipe error, and a recipe prints and parses back to itself.
// Input: a recipe; from the first NUL on, up to four --set arguments separated by NULs.
// clang++ -std=c++20 -fsanitize=fuzzer,address,undefined -Isrc ...
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "recipe/recipe.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  std::string_view input(reinterpret_cast<const char*>(bytes), size);
  const std::string_view text = input.substr(0, input.find('\0'));
  lathe::Sets sets;
  input.remove_prefix(text.size());
  while (!input.empty() && sets.size() < 4) {
    input.remove_prefix(1);
    const std::string_view set = input.substr(0, input.find('\0'));
    sets.emplace_back(set);
    input.remove_prefix(set.size());
  }
  try {
    const lathe::Recipe recipe = lathe::parse_recipe(text, "fuzz.toml", sets);
    if (lathe::parse_recipe(lathe::to_toml(recipe), "again.toml") != recipe) std::abort();
    lathe::validate(lathe::tiny_twin(recipe));
  } catch (const lathe::UserError& error) {
    if (error.exit_code() != lathe::Exit::bad_recipe) std::abort();
    // An error without a place comes from validate(tiny_twin): a twin of a valid recipe must be valid.
    const std::string_view message = error.what();
    if (message.substr(0, 5) != "fuzz." && message.substr(0, 5) != "--set") std::abort();
  }
  return 0;
}
