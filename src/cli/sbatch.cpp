#include <limits.h>
#include <unistd.h>

#include <filesystem>

#include "cli/command.h"

namespace lathe::cli {
namespace {

// The program by the path that it was started from, where that is known: nodes have the same file system.
std::string this_program() {
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
  return n > 0 ? std::string(path, static_cast<size_t>(n)) : "lathe";
}

}  // namespace

void add_sbatch(CLI::App& app, int&) {
  struct Options {
    RecipeOptions recipe;
    JobOptions job;
  };
  auto o = std::make_shared<Options>();
  CLI::App* cmd = app.add_subcommand("sbatch", "Print a batch script for Slurm that trains a recipe on several nodes");
  o->recipe.add_to(*cmd);
  cmd->add_option("--nodes", o->job.nodes, "Machines; default: 1")->check(whole_number(1, 100000));
  cmd->add_option("--ranks-per-node", o->job.ranks_per_node, "Ranks on each of them; default: 1")
      ->check(whole_number(1, 1024));
  cmd->add_option("--threads", o->job.threads, "Processor cores of each rank; default: 1")
      ->check(whole_number(1, 1024));
  cmd->add_option("--minutes", o->job.minutes, "Time of the job, which is queued again until it is done; default: 60")
      ->check(whole_number(1, 1 << 20));
  cmd->add_option("--grace", o->job.grace,
                  "Seconds before its end at which ranks are told to write a checkpoint; default: 120")
      ->check(whole_number(1, 65535));  // Slurm's limit
  cmd->add_option("--mpi", o->job.mpi, "How srun starts ranks: pmix (Open MPI; default), pmi2 (MPICH), ...")
      ->check(not_empty());
  cmd->add_option("--partition", o->job.partition, "Of the cluster; default: its own")->check(not_empty());
  cmd->add_option("--account", o->job.account, "That pays; default: the user's")->check(not_empty());
  cmd->add_option("--out", o->job.out, "Run directory, which all nodes see; default: runs/<recipe>-slurm here")
      ->check(not_empty());
  cmd->footer(
      "Example: lathe sbatch fashion_mnist --nodes 2 --ranks-per-node 4 --threads 8 > job.sh && sbatch job.sh\n"
      "Memory is that of the plan for the largest rank, with a tenth on top and 256 MiB for the library of MPI.");
  cmd->callback([o] {
    const Recipe r = o->recipe.load();
    JobOptions job = o->job;
    CompileOptions compile_options;
    compile_options.mesh = {job.nodes * job.ranks_per_node, 0};
    Recipe of_rank = r;
    if (of_rank.device.name == "cpu") of_rank.device.threads = job.threads;
    const Compiled first = compile(of_rank, describe_data(r), compile_options);
    job.recipe = o->recipe.recipe.empty() ? r.name : o->recipe.recipe;
    if (std::error_code ec; std::filesystem::is_regular_file(job.recipe, ec))
      job.recipe = std::filesystem::absolute(job.recipe).string();
    job.sets = o->recipe.all_sets();
    job.program = this_program();
    job.out = std::filesystem::absolute(job.out.empty() ? fmt::format("runs/{}-slurm", r.name) : job.out).string();
    fmt::print("{}", job_script(first, job));
  });
}

}  // namespace lathe::cli
