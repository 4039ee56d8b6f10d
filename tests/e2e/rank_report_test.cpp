// report.html and the trace of a run on ranks: threads, processes over TCP, processes of MPI.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "process.h"

namespace lathe::test {
namespace {

using nlohmann::json;

std::vector<std::string> small_run(const std::string& out, const std::vector<std::string>& more = {}) {
  std::vector<std::string> args{"train", "mlp", "--out", out};
  for (const char* s : {"data.source=synthetic", "data.train_samples=400", "data.test_samples=50", "train.steps=14",
                        "train.batch_size=32", "model.hidden=[64,64]", "parallel.bucket=64KiB", "device=cpu",
                        "device.threads=1", "train.log_every=1", "comm.timeout=60"})
    args.insert(args.end(), {"--set", s});
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  int port = 0;
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0)
    port = ntohs(address.sin_port);
  close(fd);
  return port;
}

// As torchrun does; what the first rank printed.
std::string run_processes(int ranks, const TempDir& dir, const std::vector<std::string>& args) {
  std::vector<std::unique_ptr<Running>> all;
  const std::string port = std::to_string(free_port());
  for (int r = 0; r < ranks; ++r)
    all.push_back(std::make_unique<Running>(
        args, dir.path("err" + std::to_string(r)),
        std::vector<std::string>{"RANK=" + std::to_string(r), "WORLD_SIZE=" + std::to_string(ranks),
                                 "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port},
        dir.path("out" + std::to_string(r))));
  for (int r = 0; r < ranks; ++r)
    EXPECT_EQ(all[static_cast<size_t>(r)]->wait(), 0) << r << ": " << read_file(dir.path("err" + std::to_string(r)));
  for (int r = 1; r < ranks; ++r) EXPECT_EQ(read_file(dir.path("out" + std::to_string(r))), "") << "one rank prints";
  return read_file(dir.path("out0"));
}

// Every rank is a process of the trace, with what it computes and what it sends in different rows, at the same time.
void expect_trace(const std::string& run, int ranks, int steps) {
  const json j = json::parse(read_file(run + "/trace.json"));
  std::map<std::pair<int, int>, std::string> rows;
  std::map<int, std::string> names;
  struct Rank {
    int kernels = 0, collectives = 0, waits = 0;
    double begin = 1e30, end = 0;
    std::set<std::string> nodes;
  };
  std::map<int, Rank> found;
  double last = 0;
  for (const auto& e : j["traceEvents"]) {
    const int pid = e["pid"];
    if (e["name"] == "process_name") names[pid] = e["args"]["name"];
    if (e["name"] == "thread_name") rows[{pid, e["tid"]}] = e["args"]["name"];
    if (e["ph"] != "X") continue;
    ASSERT_GE(e["ts"].get<double>(), last) << "in the order of time";
    last = e["ts"];
    const std::string row = rows.at({pid, e["tid"]});
    Rank& r = found[pid];
    r.kernels += row == "main thread" && e["cat"] == "kernel";
    r.waits += row == "main thread" && e["cat"] == "wait";
    if (e["cat"] != "communication") continue;
    EXPECT_EQ(row, "communication lane") << e;
    ++r.collectives;
    r.nodes.insert(e["args"]["node"]);
    r.begin = std::min(r.begin, e["ts"].get<double>());
    r.end = std::max(r.end, e["ts"].get<double>() + e["dur"].get<double>());
  }
  ASSERT_EQ(found.size(), static_cast<size_t>(ranks));
  for (const auto& [pid, r] : found) {
    EXPECT_TRUE(names[pid].starts_with("rank " + std::to_string(pid))) << names[pid];
    EXPECT_GE(r.kernels, 5 * steps) << pid;
    EXPECT_GE(r.collectives, steps - 1) << pid;
    EXPECT_GE(r.waits, 1) << pid;
    EXPECT_EQ(r.nodes, found[0].nodes) << pid;
    // On one clock: collectives of all ranks are within the same steps.
    EXPECT_LT(r.begin, found[0].end) << pid;
    EXPECT_LT(found[0].begin, r.end) << pid;
  }
  EXPECT_EQ(j["otherData"]["steps"], std::to_string(steps));
}

void expect_ranks_in_report(const std::string& run, int ranks, bool profiled) {
  const std::string html = read_file(run + "/report.html");
  const auto has = [&](const std::string& part) { return html.find(part) != html.npos; };
  EXPECT_TRUE(has("<h2>Ranks</h2>"));
  EXPECT_TRUE(has("another one waited "));
  for (const char* column : {"of its own", "in communication", "exposed", "waiting for data", "memory predicted"})
    EXPECT_TRUE(has(column)) << column;
  for (int r = 0; r < ranks; ++r) EXPECT_TRUE(has("<td>rank " + std::to_string(r) + " on ")) << r;
  EXPECT_TRUE(has("<td>the same</td>")) << "as much is allocated as was predicted";
  EXPECT_EQ(has("on " + std::to_string(ranks) + " ranks</h2>"), profiled);
  EXPECT_EQ(has("aria-label='timeline'"), profiled);
  const auto draws = [&](int rank, const char* kind) { return has(fmt::format("<title>rank {} {}", rank, kind)); };
  for (const char* kind : {"computes:", "waits for communication:"}) EXPECT_EQ(draws(0, kind), profiled) << kind;
  // What is too short to be seen is not drawn: on a busy machine one rank or another moves its bytes in no time.
  int moving = 0;
  for (int r = 0; r < ranks; ++r) moving += draws(r, "moves bytes:");
  EXPECT_EQ(moving > 0, profiled);
  for (const char* kind : {"waits for the last rank", "moves bytes"}) EXPECT_EQ(has(kind), profiled) << kind;
  for (int r = 0; r < ranks && profiled; ++r) EXPECT_TRUE(has(">rank " + std::to_string(r) + "</text>")) << r;
  const json summary = json::parse(read_file(run + "/summary.json"));
  ASSERT_EQ(summary["by_rank"].size(), static_cast<size_t>(ranks));
  for (const auto& row : summary["by_rank"]) {
    EXPECT_EQ(row["memory_predicted"], row["memory_allocated"]);
    EXPECT_GT(row["communication_seconds"].get<double>(), 0);
    EXPECT_EQ(row["steps"], summary["steps"]);
  }
}

const std::vector<std::string> kProfile{"--profile", "--profile-steps", "6"};

TEST(RankReport, OfThreads) {
  const TempDir dir;
  const std::string run = dir.path("run"), plain = dir.path("plain");
  std::vector<std::string> args = small_run(run, kProfile);
  args.insert(args.end(), {"--ranks", "3"});
  const Outcome o = run_lathe(args);
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("slowest                rank "), o.out.npos) << o.out;
  expect_trace(run, 3, 6);
  expect_ranks_in_report(run, 3, true);
  const Outcome without = run_lathe(small_run(plain, {"--ranks", "2"}));
  ASSERT_EQ(without.code, 0) << without.err;
  expect_ranks_in_report(plain, 2, false);
  EXPECT_FALSE(std::filesystem::exists(plain + "/timeline.json"));
  EXPECT_NE(read_file(plain + "/report.html").find("This is the first rank&#39;s."), std::string::npos);
  // A timeline that is none, and one rank.
  std::filesystem::resize_file(run + "/timeline.json", 40);
  EXPECT_EQ(run_lathe({"report", run}).code, 0);
  EXPECT_NE(read_file(run + "/report.html").find("timeline.<wbr>json is not readable"), std::string::npos);
}

TEST(RankReport, OfProcesses) {
  const TempDir dir;
  const std::string run = dir.path("run");
  const std::string out = run_processes(3, dir, small_run(run, kProfile));
  EXPECT_NE(out.find("report.html"), out.npos) << out;
  EXPECT_NE(out.find("trace.json (6 steps, "), out.npos) << out;
  expect_trace(run, 3, 6);
  expect_ranks_in_report(run, 3, true);
  const json other = json::parse(read_file(run + "/trace.json"))["otherData"];
  EXPECT_NE(other["clocks"].get<std::string>().find("as that of the first, within "), std::string::npos) << other;
  EXPECT_NE(read_file(run + "/report.html").find("Not measured yet"), std::string::npos);
  // Later, in one process: what was measured of the ranks is still there.
  ASSERT_EQ(run_lathe({"report", run}).code, 0);
  expect_ranks_in_report(run, 3, true);
  EXPECT_NE(read_file(run + "/report.html").find("<h2>Time per node</h2>"), std::string::npos);
}

// The run is over before so many steps were profiled, and without a profile.
TEST(RankReport, OfShortRunsOfProcesses) {
  const TempDir dir;
  std::vector<std::string> args = small_run(dir.path("run"), {"--profile"});
  args.insert(args.end(), {"--set", "train.steps=5"});
  run_processes(2, dir, args);
  expect_trace(dir.path("run"), 2, 2);
  expect_ranks_in_report(dir.path("run"), 2, true);
  args = small_run(dir.path("short"), {"--profile"});
  args.insert(args.end(), {"--set", "train.steps=2"});
  const std::string out = run_processes(2, dir, args);
  EXPECT_NE(out.find("the run is over in 2 steps"), out.npos) << out;
  expect_ranks_in_report(dir.path("short"), 2, false);
  run_processes(2, dir, small_run(dir.path("plain")));
  expect_ranks_in_report(dir.path("plain"), 2, false);
  // Continued at its end: nothing changes.
  const std::string before = read_file(dir.path("plain") + "/report.html");
  run_processes(2, dir, small_run(dir.path("plain"), {"--resume"}));
  EXPECT_EQ(read_file(dir.path("plain") + "/report.html"), before);
}

TEST(RankReport, OfMpi) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the library of MPI is not built for it";
#endif
  if (std::system("command -v mpirun.openmpi >/dev/null") != 0) GTEST_SKIP() << "needs mpirun.openmpi";
  const TempDir dir;
  std::string command = "cd " + dir.path() +
                        " && env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=/tmp mpirun.openmpi "
                        "--oversubscribe --bind-to none -n 2 " LATHE_BINARY;
  for (const std::string& a : small_run(dir.path("run"), kProfile)) command += " '" + a + "'";
  EXPECT_EQ(std::system((command + " >out 2>err </dev/null").c_str()), 0) << read_file(dir.path("err"));
  expect_trace(dir.path("run"), 2, 6);
  expect_ranks_in_report(dir.path("run"), 2, true);
}

// What sharding saves is saved: bytes of a rank's process beyond those of one with a tiny net, whatever else it holds.
TEST(RankReport, ResidentMemoryFollowsTheLevel) {
  constexpr int kRanks = 4;
  constexpr double kWide = 1024, kParams = 784 * kWide + 8 * kWide * kWide + kWide * 10,
                   kLayer = 4 * kWide * kWide / kParams;
  const TempDir dir;
  const auto largest = [&](const std::string& name, const char* hidden, int level) {
    std::vector<std::string> more;
    for (const std::string& s : {std::string("optimizer.name=adam"), fmt::format("model.hidden={}", hidden),
                                 fmt::format("parallel.shard={}", level), std::string("parallel.in_flight=0B"),
                                 std::string("train.steps=3"), std::string("train.batch_size=8"),
                                 std::string("data.train_samples=24"), std::string("checkpoint.every_epochs=0")})
      more.insert(more.end(), {"--set", s});
    more.emplace_back("--quiet");
    run_processes(kRanks, dir, small_run(dir.path(name), more));
    std::pair<int64_t, int64_t> most;  // allocated, resident
    const json summary = json::parse(read_file(dir.path(name) + "/summary.json"));
    EXPECT_EQ(summary["by_rank"].size(), size_t{kRanks});
    for (const json& row : summary["by_rank"]) {
      EXPECT_EQ(row["memory_allocated"], row["memory_predicted"]) << row;
      most.first = std::max(most.first, row["memory_allocated"].get<int64_t>());
      most.second = std::max(most.second, row["memory_resident"].get<int64_t>());
    }
    return most;
  };
  const auto none = largest("none", "[8]", 0);
  const double promised[] = {16, 8 + 8.0 / kRanks, 4 + 12.0 / kRanks, 16.0 / kRanks};
  for (int level = 0; level < 4; ++level) {
    const auto [allocated, resident] =
        largest(fmt::format("level{}", level), "[1024,1024,1024,1024,1024,1024,1024,1024,1024]", level);
    const double planned = static_cast<double>(allocated - none.first) / kParams,
                 in_fact = static_cast<double>(resident - none.second) / kParams;
    std::printf("level %d: %.2f bytes per parameter allocated, %.2f resident\n", level, planned, in_fact);
    // Two tensors for checkpoints; a gathered weight and the next, or a gradient before and after its sum.
    EXPECT_LE(planned, promised[level] + 4.5 * kLayer) << level;
    EXPECT_LE(resident - none.second, allocated - none.first + (8 << 20)) << level;
  }
}

}  // namespace
}  // namespace lathe::test
