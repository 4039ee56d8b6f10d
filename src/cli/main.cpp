// lathe: the command line. Everything here goes through the library; this file maps errors to exit codes.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <sstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "cli/command.h"

namespace lathe::cli {
namespace {

// The name of a sub-command that does not exist, where one is expected: at the beginning, and after `bench`.
void check_command(const CLI::App& app, int argc, char** argv, int at) {
  if (at >= argc) return;
  if (argv[at][0] == '-') {
    // Without this CLI11 would say that a command is missing.
    const std::string option(argv[at]);
    if (!app.get_option_no_throw(option.substr(0, option.find('='))))
      throw UserError(fmt::format("{}: unknown option {}; --help shows those that there are", app.get_name(), argv[at]),
                      Exit::usage);
    return;
  }
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_name() == argv[at]) {
      if (!command->get_subcommands({}).empty()) check_command(*command, argc, argv, at + 1);
      return;
    }
    names.push_back(command->get_name());
  }
  const std::vector<std::string_view> words(names.begin(), names.end());
  const auto near = did_you_mean(argv[at], words);
  throw UserError(fmt::format("{}: unknown command \"{}\"{}; commands are: {}", app.get_name(), argv[at],
                              near ? fmt::format("; did you mean \"{}\"?", *near) : "", fmt::join(names, ", ")),
                  Exit::usage);
}

int run(int argc, char** argv) {
  CLI::App app{"Lathe trains deep networks: one native program, on the CPU or a card."};
  app.name("lathe");
  app.set_version_flag("--version", std::string("lathe ") + kVersion);
  app.require_subcommand(1);
  app.footer(
      "Start with:  lathe train           (trains the default recipe)\n"
      "             lathe plan            (what it will allocate and compute, without running it)\n"
      "             lathe COMMAND --help  (each with an example)");
  int exit = 0;
  for (const Command add : {add_train, add_eval, add_predict, add_report, add_runs, add_plan, add_sbatch, add_ir,
                            add_devices, add_selftest, add_bench, add_recipes, add_fetch, add_ops, add_env})
    add(app, exit);
  try {
    cpu::force_isa_from_environment();
    if (argc == 1) {
      std::fputs(app.help().c_str(), stderr);
      return static_cast<int>(Exit::usage);
    }
    check_command(app, argc, argv, 1);
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    // Not by CLI11 itself, whose stream keeps to itself that nothing could be written.
    std::ostringstream text;
    const int code = app.exit(e, text, text);
    fmt::print("{}", text.str());
    return code;
  } catch (const CLI::ParseError& e) {
    std::fprintf(stderr, "lathe: error: %s\nRun with --help for more information.\n", e.what());
    return static_cast<int>(Exit::usage);
  }
  return exit;
}

// A program that is started without its standard streams must not get their numbers for files that it opens: what is
// printed would end in them. What is put in their place can be neither read nor written, as it should be.
void keep_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
      std::_Exit(static_cast<int>(Exit::os_error));
}

}  // namespace
}  // namespace lathe::cli

int main(int argc, char** argv) {
  lathe::cli::keep_standard_streams();
  std::signal(SIGPIPE, SIG_IGN);
  lathe::set_warning_sink([](const std::string& text) { fmt::print(stderr, "warning: {}\n", text); });
  using lathe::Exit;
  // A result that nobody could read is no result; a reader that has seen enough (`lathe ... | head`) is no error.
  const auto lost_output = [](int error) {
    if (error == EPIPE) return static_cast<int>(Exit::ok);
    std::fprintf(stderr, "lathe: error: cannot write to the standard output: %s\n", std::strerror(error));
    return static_cast<int>(Exit::io_error);
  };
  try {
    const int exit = lathe::cli::run(argc, argv);
    if (std::fflush(stdout) != 0 && exit == 0) return lost_output(errno);
    return exit;
  } catch (const std::system_error& e) {  // fmt::print
    return lost_output(e.code().value());
  } catch (const lathe::Error& e) {
    std::fflush(stdout);
    std::fprintf(stderr, "lathe: error: %s\n", e.what());
    if (e.kind() == lathe::ErrorKind::internal)
      std::fprintf(stderr, "This is a bug in Lathe; please report it with the command and the recipe.\n");
    // Threads of a driver that was just lost may be in the middle of their work, such as PoCL's in its compiler: what
    // they use must not be torn down below them.
    if (e.kind() == lathe::ErrorKind::device) std::_Exit(static_cast<int>(e.exit_code()));
    return static_cast<int>(e.exit_code());
  } catch (const std::bad_alloc&) {
    std::fprintf(
        stderr,
        "lathe: error: out of memory; `lathe plan` shows what the run needs, a smaller train.batch_size needs less\n");
    return static_cast<int>(Exit::os_error);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "lathe: error: %s\n", e.what());
    return static_cast<int>(Exit::internal);
  }
}
