#include "compile/job_script.h"

#include <algorithm>
#include <string_view>

#include "base/checked.h"
#include "base/format_bytes.h"
#include "compile/outside.h"

namespace lathe {
namespace {

// What MPI's library and its transport take in a rank. Four ranks on two hosts: 11 MiB (Open MPI 4.1.4 over TCP) and 69
// (MPICH 4.0.2 with UCX over TCP); fabrics pin more. Nodes have it, and a job that asks for too little is killed.
constexpr int64_t kMpiBytes = 256 << 20;

// As one word of a shell.
std::string shell_word(std::string_view text) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-./=:,+@%").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, is_plain)) return std::string(text);
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else
      out += c;
  }
  return out + "'";
}

// Values of #SBATCH lines are not read by a shell: nothing there can be quoted.
void check_word(const char* option, const std::string& value) {
  const bool fits = std::ranges::all_of(value, [](char c) { return c > ' ' && c != '#' && c != '\'' && c != '"'; });
  if (!fits || value.starts_with('-'))
    throw UserError(fmt::format("{}: expected one word without quotes, got \"{}\"", option, value), Exit::usage);
}

std::string wall_time(int64_t minutes) { return fmt::format("{:02}:{:02}:00", minutes / 60, minutes % 60); }

}  // namespace

int64_t host_bytes_of_rank(const Compiled& c) {
  const RunMemory m = c.memory();
  const int64_t on_device = c.target.host_memory ? 0 : m.arena + m.device_staging;
  const int64_t bytes = checked_add(m.total() - on_device, estimate_outside(c, 0), "memory of a rank");
  return checked_add(bytes, bytes / 10 + (c.mesh.ranks > 1 ? kMpiBytes : 0), "memory of a rank");
}

std::string job_script(const Compiled& c, const JobOptions& o) {
  check_word("--partition", o.partition);
  check_word("--account", o.account);
  check_word("--mpi", o.mpi);
  if (o.grace >= 60 * o.minutes)
    throw UserError(
        fmt::format("--grace: expected less than the time of the job ({} s), got {}", 60 * o.minutes, o.grace),
        Exit::usage);
  constexpr int64_t kMiB = 1 << 20;
  const int64_t rank_bytes = host_bytes_of_rank(c);
  const int64_t node_mib = ceil_div(checked_mul(rank_bytes, o.ranks_per_node, "memory of a node"), kMiB);
  const DeviceName device = parse_device_name(c.recipe.device.name);
  std::string name;
  for (const char ch : c.recipe.name) name += ch > ' ' && ch != '#' ? ch : '_';
  std::string text = fmt::format(
      "#!/bin/bash\n"
      "# {} on {} ranks of {} cores. A rank needs {} of memory (lathe plan); {} parameters, {} steps.\n"
      "# Submit with: sbatch FILE. Stopped by the signal below it writes a checkpoint, leaves with 75, and is queued\n"
      "# again; any other code ends it.\n"
      "#SBATCH --job-name=lathe-{}\n"
      "#SBATCH --nodes={}\n"
      "#SBATCH --ntasks-per-node={}\n"
      "#SBATCH --cpus-per-task={}\n"
      "#SBATCH --mem={}M\n"
      "#SBATCH --time={}\n"
      "#SBATCH --signal=USR1@{}\n"
      "#SBATCH --requeue\n"
      "#SBATCH --open-mode=append\n",
      name, c.mesh.ranks, o.threads, format_bytes(rank_bytes), c.parameters(), c.steps.total_steps, name, o.nodes,
      o.ranks_per_node, o.threads, node_mib, wall_time(o.minutes), o.grace);
  if (device.backend == "cuda") text += "#SBATCH --gpus-per-task=1\n";
  if (!o.partition.empty()) text += fmt::format("#SBATCH --partition={}\n", o.partition);
  if (!o.account.empty()) text += fmt::format("#SBATCH --account={}\n", o.account);
  std::string sets;
  for (const std::string& s : o.sets) sets += fmt::format(" --set {}", shell_word(s));
  text += fmt::format(
      "\n"
      "# A rank that dies must end the others: srun would wait for them.\n"
      "export SLURM_KILL_BAD_EXIT=1\n"
      "export SRUN_CPUS_PER_TASK=${{SLURM_CPUS_PER_TASK:-{}}}\n"
      "code=0\n"
      "srun --mpi={} {} train {}{} --out {} --resume || code=$?\n"
      "if [ \"$code\" = 75 ]; then\n"
      "  echo \"stopped by a signal: queued again\"\n"
      "  scontrol requeue \"$SLURM_JOB_ID\"\n"
      "  exit 0\n"
      "fi\n"
      "exit \"$code\"\n",
      o.threads, o.mpi, shell_word(o.program), shell_word(o.recipe), sets, shell_word(o.out));
  return text;
}

}  // namespace lathe
