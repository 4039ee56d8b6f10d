#include "comm/launch.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace lathe::comm {
namespace {

// Slurm's numbers of steps that are not srun's: batch scripts, interactive shells, ...
constexpr int64_t kFirstSpecialStep = 0xfffffff0;

class Variables {
 public:
  explicit Variables(const Lookup& lookup) : lookup_(lookup) {}

  bool has(const char* name) const { return !text(name).empty(); }
  std::string_view text(const char* name) const {
    const char* value = lookup_(name);
    return value ? value : "";
  }
  std::optional<int64_t> number(const char* name) const {
    const std::string_view value = text(name);
    if (value.empty()) return std::nullopt;
    int64_t n = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
    LATHE_USER_CHECK(error == std::errc() && end == value.data() + value.size() && n >= 0,
                     "{}: expected a number, got \"{}\" (environment); the launcher of the run sets it", name, value);
    return n;
  }
  // Both or neither: the number of `what` and the count of them that it is below.
  bool pair(const char* what, const char* of, int& number_out, int& count_out) const {
    const auto n = number(what), count = number(of);
    if (!n && !count) return false;
    LATHE_USER_CHECK(n && count, "{} is set and {} is not (environment); a launcher sets both", n ? what : of,
                     n ? of : what);
    LATHE_USER_CHECK(*count <= 1 << 24, "{}: {} processes are too many (environment)", of, *count);
    LATHE_USER_CHECK(*n < *count, "{} is {} and {} is {} (environment); expected a number below it", what, *n, of,
                     *count);
    number_out = static_cast<int>(*n);
    count_out = static_cast<int>(*count);
    return true;
  }

 private:
  const Lookup& lookup_;
};

// Tasks of the own node, of "2(x3),1": what Slurm says of all nodes in order.
int tasks_of_node(std::string_view text, int64_t node) {
  const auto take = [&]() -> int64_t {
    int64_t n = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (error != std::errc() || n < 0) return -1;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return n;
  };
  while (!text.empty()) {
    const int64_t tasks = take();
    int64_t nodes = 1;
    if (text.starts_with("(x")) {
      text.remove_prefix(2);
      nodes = take();
      if (!text.starts_with(")")) return 0;
      text.remove_prefix(1);
    }
    if (tasks < 0 || nodes < 0 || tasks > 1 << 24) return 0;
    if (node < nodes) return static_cast<int>(tasks);
    node -= nodes;
    if (!text.starts_with(",")) return 0;
    text.remove_prefix(1);
  }
  return 0;
}

bool is_step(const Variables& v) {
  const auto step = v.number(v.has("SLURM_STEP_ID") ? "SLURM_STEP_ID" : "SLURM_STEPID");
  return step && *step < kFirstSpecialStep && v.has("SLURM_PROCID");
}

void read_slurm(const Variables& v, Launch& out) {
  // SLURM_NTASKS is the step's for srun's children in most versions; the step's own variable is it in all.
  const char* tasks = v.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  out.launcher = "Slurm";
  v.pair("SLURM_PROCID", tasks, out.rank, out.size);
  const char* per_node = v.has("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
  out.local_rank = static_cast<int>(v.number("SLURM_LOCALID").value_or(0));
  out.local_size = tasks_of_node(v.text(per_node), v.number("SLURM_NODEID").value_or(0));
  if (out.local_size == 0 && out.size == 1) out.local_size = 1;
  LATHE_USER_CHECK(out.local_size == 0 || out.local_rank < out.local_size,
                   "SLURM_LOCALID is {} and {} is {} (environment): {} tasks on this node", out.local_rank, per_node,
                   v.text(per_node), out.local_size);
  // A second launcher inside of the step, whose variables are not known.
  for (const char* other : {"PMIX_RANK", "PMI_RANK"})
    if (const auto rank = v.number(other))
      LATHE_USER_CHECK(*rank == out.rank,
                       "{} is {} and SLURM_PROCID is {} (environment): two launchers; start the program with srun or "
                       "mpirun, not with both",
                       other, *rank, out.rank);
}

// Of the first rank. torchrun itself listens at MASTER_PORT: the ranks meet at the next one.
void read_address(const Variables& v, Launch& out) {
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT"})
    LATHE_USER_CHECK(v.has(name),
                     "RANK and WORLD_SIZE are set and {} is not (environment); it says where rank 0 can be reached. "
                     "Set it, or start the program with torchrun, mpirun or srun",
                     name);
  out.address = v.text("MASTER_ADDR");
  const int64_t port = *v.number("MASTER_PORT") + (v.has("TORCHELASTIC_RUN_ID") ? 1 : 0);
  LATHE_USER_CHECK(port > 0 && port < 65536, "MASTER_PORT: expected a port below 65535, got {} (environment)", port);
  out.port = static_cast<int>(port);
  const bool is_here = out.address == "localhost" || out.address.starts_with("127.");
  if (out.local_size == 0 && is_here) {
    out.local_rank = out.rank;
    out.local_size = out.size;
  }
}

}  // namespace

Launch find_launch(const Lookup& lookup, std::string host) {
  const Variables v(lookup);
  Launch out;
  out.host = std::move(host);
  out.pmix = v.has("PMIX_RANK") || v.has("PMIX_NAMESPACE");
  out.pmi = v.has("PMI_FD") || v.has("PMI_PORT") || v.has("PMI_RANK");
  const auto local = [&](const char* rank, const char* size) {
    if (!v.pair(rank, size, out.local_rank, out.local_size)) out.local_size = out.size == 1 ? 1 : 0;
  };
  if (v.pair("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", out.rank, out.size)) {
    out.launcher = "Open MPI";
    local("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
  } else if (v.has("MPI_LOCALNRANKS") && v.pair("PMI_RANK", "PMI_SIZE", out.rank, out.size)) {
    out.launcher = "MPICH";
    local("MPI_LOCALRANKID", "MPI_LOCALNRANKS");
  } else if (is_step(v)) {
    read_slurm(v, out);
  } else if (v.pair("PMI_RANK", "PMI_SIZE", out.rank, out.size)) {
    out.launcher = "MPICH";
    out.local_size = out.size == 1 ? 1 : 0;
  } else if (v.has("WORLD_SIZE")) {
    // RANK alone may mean anything.
    v.pair("RANK", "WORLD_SIZE", out.rank, out.size);
    out.launcher = "torchrun";
    local("LOCAL_RANK", "LOCAL_WORLD_SIZE");
    if (out.size > 1) read_address(v, out);
  } else {
    LATHE_USER_CHECK(!v.has("PMIX_RANK"),
                     "PMIX_RANK is {} and no variable says how many ranks there are (environment); start the program "
                     "with mpirun or srun",
                     v.text("PMIX_RANK"));
  }
  LATHE_USER_CHECK(out.local_size <= out.size,
                   "the launcher ({}) says that {} of {} processes are on this host (environment)", out.launcher,
                   out.local_size, out.size);
  return out;
}

Launch find_launch() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return find_launch([](const char* name) { return std::getenv(name); }, host);
}

}  // namespace lathe::comm
