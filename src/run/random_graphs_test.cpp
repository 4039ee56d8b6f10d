// Random graphs of every kind on devices, with all passes and with each one disabled, against the interpreter.
// LATHE_RANDOM_GRAPHS: how many of each kind.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "passes/check/random_graph.h"
#include "passes/pass.h"
#include "run/run_graph.h"

namespace lathe {
namespace {

int number_of_graphs(int usual) {
  const char* text = std::getenv("LATHE_RANDOM_GRAPHS");
  return text ? std::atoi(text) : usual;
}

std::vector<std::string> optional_passes() {
  std::vector<std::string> out;
  for (const PassEntry& p : pipeline())
    if (!p.required) out.emplace_back(p.name);
  return out;
}

void check_graph(const Backend& backend, RandomGraphKind kind, uint64_t seed, bool each_pass) {
  const Graph g =
      lathe::random_graph(seed, {.nodes = 6 + static_cast<int>(seed % 8) * 6, .gradient = seed % 2 == 0, .kind = kind});
  PipelineOptions only_required;
  only_required.disabled = optional_passes();
  const Graph plain = run_pipeline(g, {}, only_required);
  const auto inputs = random_inputs(plain, seed);
  const auto exact = interpret(plain, inputs, Precision::exact), rounded = interpret(plain, inputs, Precision::rounded);
  std::vector<std::string> disabled{""};
  if (each_pass) disabled.insert(disabled.end(), only_required.disabled.begin(), only_required.disabled.end());
  for (const std::string& name : disabled) {
    SCOPED_TRACE(fmt::format("{} seed {} without \"{}\"", backend.name(), seed, name));
    PipelineOptions o;
    if (!name.empty()) o.disabled = {name};
    std::vector<HostTensor> actual;
    ASSERT_NO_THROW(actual = run_graph(backend, {}, run_pipeline(g, {backend.target({})}, o), inputs));
    ASSERT_EQ(actual.size(), exact.size());
    for (size_t i = 0; i < exact.size(); ++i)
      // Where terms cancel, rounding them to f32 alone changes more.
      ASSERT_LE(relative_error(actual[i], exact[i]), std::max(2e-4, 20 * relative_error(rounded[i], exact[i])))
          << g.outputs[i].name;
  }
}

class RandomGraphs : public ::testing::TestWithParam<RandomGraphKind> {};

TEST_P(RandomGraphs, OnCpu) {
  const int graphs = number_of_graphs(10);
  for (int seed = 0; seed < graphs && !HasFatalFailure(); ++seed)
    check_graph(find_backend("cpu"), GetParam(), static_cast<uint64_t>(seed), true);
}

// The driver compiles the kernels of each graph: fewer of them.
TEST_P(RandomGraphs, OnOpenCl) {
  const Backend& backend = find_backend("opencl");
  if (backend.devices().empty()) GTEST_SKIP() << backend.unavailable_reason();
  const int graphs = std::max(1, number_of_graphs(10) / 50);
  for (int seed = 0; seed < graphs && !HasFatalFailure(); ++seed)
    check_graph(backend, GetParam(), static_cast<uint64_t>(seed), false);
}

INSTANTIATE_TEST_SUITE_P(Kinds, RandomGraphs,
                         ::testing::Values(RandomGraphKind::mixed, RandomGraphKind::products, RandomGraphKind::losses,
                                           RandomGraphKind::shared));

}  // namespace
}  // namespace lathe
