// Ranks of MPI, as mpirun starts them (run.sh): `lathe_mpi_test MODE`. Each rank checks for itself; the exit code is 0
// when all that it checked holds.
#include "comm/mpi.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "comm/contract_test.h"

namespace lathe::comm {
namespace {

int failures = 0;

void expect(bool holds, int rank, const std::string& what) {
  if (holds) return;
  ++failures;
  fmt::print(stderr, "[rank {}] {}\n", rank, what);
}

// Messages of failed groups may be left over; then MPI is not shut down, and mpirun ends the others with the first rank
// that leaves: not before all have said what they have to.
void leave_together() {
  std::fflush(stdout);
  const auto group = mpi_group();
  Collectives(*group).barrier();
}

// The cases of every group, each on a group of its own.
void run_contract() {
  for (const contract::Case& c : contract::kCases) {
    MpiOptions options = mpi_options();
    options.timeout = c.timeout;
    const auto group = mpi_group(options);
    std::string error;
    try {
      c.run(*group);
    } catch (const std::exception& e) {
      error = e.what();
    }
    const bool holds = c.error ? error.find(c.error) != std::string::npos : error.empty();
    expect(holds, group->rank(), fmt::format("{}: {}", c.name, error.empty() ? "no error" : error));
    // A group that failed stays so.
    if (c.error) {
      std::string again;
      try {
        group->send(0, 0, {});
      } catch (const CommError& e) {
        again = e.what();
      }
      expect(again == error, group->rank(), fmt::format("{}: then \"{}\"", c.name, again));
    }
  }
  if (failures == 0) fmt::print("[rank {}] {} cases hold\n", find_launch().rank, std::size(contract::kCases));
  leave_together();
}

// Nobody is told through MPI: the own thread's abort() ends the wait, another rank's does not.
void run_control() {
  MpiOptions options = mpi_options();
  options.notify = false;
  options.timeout = 1.5;
  const auto group = mpi_group(options);
  const auto begin = std::chrono::steady_clock::now();
  std::string error;
  try {
    std::jthread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      if (group->rank() == 0) group->abort("the control channel says so");
    });
    std::byte b{};
    Message m = group->receive((group->rank() + 1) % group->size(), 0, {&b, 1});
    group->wait(m);
  } catch (const CommError& e) {
    error = e.what();
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const bool told = group->rank() == 0;
  expect(error.find(told ? "the control channel says so" : " waited 1.5 s") != std::string::npos, group->rank(), error);
  expect(told ? seconds < 1 : seconds < 10, group->rank(), fmt::format("it took {} s", seconds));
  leave_together();
}

// Steps of collectives, between lines by which heap_count knows them.
void run_heap(int steps) {
  const auto group = mpi_group();
  Collectives c(*group);
  std::vector<float> large(1 << 20), small(1000);
  for (int step = 1; step <= steps; ++step) {
    c.all_reduce(contract::bytes_of(large), DType::f32);
    c.reduce_scatter(contract::bytes_of(small), DType::f32);
    c.all_gather(contract::bytes_of(small), 4);
    c.broadcast(contract::bytes_of(large), step % group->size());
    c.barrier();
    char line[32];
    const int size = std::snprintf(line, sizeof line, "{\"step\":%d}\n", step);
    std::fwrite(line, 1, static_cast<size_t>(size), stdout);
  }
}

// A message of more bytes than an int counts.
void run_large() {
  const auto group = mpi_group();
  const size_t size = (size_t{1} << 31) + 12345;
  void* pages = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  expect(pages != MAP_FAILED, group->rank(), "no memory");
  const std::span data(static_cast<std::byte*>(pages), size);
  const size_t places[] = {0, size / 2, size_t{1} << 31, size - 1};
  if (group->rank() == 0)
    for (const size_t i : places) data[i] = std::byte{7};
  Message m;
  if (group->rank() == 0) m = group->send(1, 0, data);
  if (group->rank() == 1) m = group->receive(0, 0, data);
  group->wait(m);
  for (const size_t i : places)
    expect(group->rank() > 1 || data[i] == std::byte{7}, group->rank(), fmt::format("byte {}", i));
  Collectives(*group).barrier();
  munmap(pages, size);
}

// One rank fails and leaves, as `lathe` would: all end with the code of a failed peer.
void run_failure() {
  const auto group = mpi_group();
  Collectives c(*group);
  std::vector<float> data(1000);
  try {
    for (int step = 0;; ++step) {
      if (group->rank() == 1 && step == 10) throw std::runtime_error("rank 1: the disk is full");
      c.all_reduce(contract::bytes_of(data), DType::f32);
    }
  } catch (const CommError& e) {
    fmt::print("[rank {}] {}\n", group->rank(), e.what());
  } catch (const std::exception& e) {
    group->abort(e.what());
  }
  failures = static_cast<int>(Exit::peer_failure);
}

// A rank that is done early waits for the others at its end.
void run_late() {
  const auto group = mpi_group();
  if (group->rank() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(700));
}

// Plugins that cannot be used: argument 2, and a part of the error.
void run_plugin(const std::string& setting, const std::string& part) {
  MpiOptions options = mpi_options();
  options.search.setting = setting;
  std::string error;
  try {
    mpi_group(options);
  } catch (const UserError& e) {
    error = e.what();
  }
  expect(error.find(part) != std::string::npos && !error.empty(), 0, fmt::format("expected {}, got {}", part, error));
}

int run(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "contract") run_contract();
  if (mode == "control") run_control();
  if (mode == "heap") run_heap(argc > 2 ? std::atoi(argv[2]) : 20);
  if (mode == "large") run_large();
  if (mode == "failure") run_failure();
  if (mode == "late") run_late();
  if (mode == "plugin" && argc > 3) run_plugin(argv[2], argv[3]);
  if (mode == "version") {
    const auto group = mpi_group();
    if (group->rank() == 0) fmt::print("{} ranks, {}\n", group->size(), mpi_version());
  }
  return failures;
}

}  // namespace
}  // namespace lathe::comm

int main(int argc, char** argv) {
  try {
    return lathe::comm::run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
