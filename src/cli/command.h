// A sub-command of `lathe`: declares its options on the app and leaves its exit code in `exit`. One file each.
#pragma once

#include <lathe/lathe.h>

#include <CLI/CLI.hpp>
#include <limits>
#include <string>
#include <vector>

namespace lathe::cli {

using Command = void (*)(CLI::App& app, int& exit);

void add_train(CLI::App&, int&);
void add_eval(CLI::App&, int&);
void add_predict(CLI::App&, int&);
void add_report(CLI::App&, int&);
void add_runs(CLI::App&, int&);
void add_plan(CLI::App&, int&);
void add_sbatch(CLI::App&, int&);
void add_ir(CLI::App&, int&);
void add_devices(CLI::App&, int&);
void add_selftest(CLI::App&, int&);
void add_bench(CLI::App&, int&);
void add_recipes(CLI::App&, int&);
void add_fetch(CLI::App&, int&);
void add_env(CLI::App&, int&);
void add_ops(CLI::App&, int&);

// An option that was given as "": an unset shell variable, most likely, and never a wish for the default.
CLI::Validator not_empty();

// A whole number from `min` to `max`. CLI11 itself takes what is beyond 64 bits for the largest number there is.
CLI::Validator whole_number(int64_t min, int64_t max = std::numeric_limits<int64_t>::max());

// --device NAME, checked before anything else happens. `about` is added to the help.
CLI::Option* add_device_option(CLI::App&, std::string& device, const std::string& about);

// The sets with --device added, if it was given.
std::vector<std::string> with_device(std::vector<std::string> sets, const std::string& device);

// The value of an option that takes a size, like 16GiB, in bytes. UserError (usage) when it is none.
int64_t parse_size_option(const char* option, const std::string& text);

// Options that several commands share.
struct RecipeOptions {
  std::string recipe;  // empty: the default
  std::vector<std::string> sets;
  std::string device;  // --device: short for --set device=...

  void add_to(CLI::App&);
  std::vector<std::string> all_sets() const;
  Recipe load() const;
};

}  // namespace lathe::cli
