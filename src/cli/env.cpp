#include <cstdlib>

#include "cli/command.h"

namespace lathe::cli {
namespace {

struct Variable {
  const char* name;
  const char* help;
};

constexpr Variable kVariables[] = {
    {"LATHE_ISA", "instruction set of the cpu kernels: sse4, avx2, avx512; default: the best that the machine has"},
    {"LATHE_CACHE_DIR",
     "where compiled device kernels and measured peaks of devices are kept; default: XDG_CACHE_HOME/lathe or "
     "~/.cache/lathe"},
    {"LATHE_OPENCL_FORM",
     "wide or narrow: the form of the OpenCL kernels; default: wide on GPUs, narrow on processors"},
    {"LATHE_OPENCL_LIMITS",
     "work-items,local bytes,allocation bytes: makes an OpenCL device look smaller; default: what it has"},
    {"LATHE_OPENCL_TRACE", "set: an OpenCL device keeps the times of its commands, for tests; default: it does not"},
    {"LATHE_TF32", "1: cuda may round f32 inputs of products to TF32, for speed on tensor cores; default: 0"},
    {"LATHE_MPI",
     "MPI library of a run on several processes: ompi, mpich, abi, or the path of a plugin; default: the launcher's, "
     "as far as it can be loaded"},
    {"RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, LOCAL_RANK, LOCAL_WORLD_SIZE",
     "ranks without MPI: torchrun, or whoever starts them, sets these; OMPI_*, PMI_*, PMIX_* and SLURM_* are what "
     "mpirun and srun set"},
    {"LATHE_ONEDNN", "libdnnl.so.3 to compare with in `lathe bench op matmul`"},
    {"LATHE_OPENBLAS", "libopenblas.so.0 to compare with in `lathe bench op matmul`"},
};

}  // namespace

void add_env(CLI::App& app, int&) {
  CLI::App* cmd = app.add_subcommand("env", "List the environment variables that Lathe reads");
  cmd->footer("Example: LATHE_ISA=avx2 lathe bench op matmul");
  cmd->callback([] {
    for (const Variable& v : kVariables) {
      const char* value = std::getenv(v.name);
      fmt::print("  {:<16} {}{}\n", v.name, v.help, value ? fmt::format(" (now: {})", value) : "");
    }
  });
}

}  // namespace lathe::cli
