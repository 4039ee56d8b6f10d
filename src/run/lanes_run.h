// For tests: steps of a Program on an Executor, and the bytes that they leave.
#pragma once

#include <cstring>
#include <random>
#include <vector>

#include "run/executor.h"

namespace lathe::testing {

// Fills state and inputs from the seed, runs the first Program so many times, and returns the bytes of all state, then
// those of the result "r".
inline std::vector<std::byte> bytes_after_steps(Executor& e, uint32_t seed, int steps) {
  std::mt19937 rng(seed);
  const auto fill = [&](std::byte* to, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 4) {
      const float x = static_cast<float>(rng() % 2001) * 1e-3f - 1;
      std::memcpy(to + i, &x, 4);
    }
  };
  std::vector<std::byte> out;
  for (const Port& p : e.set().state) {
    std::vector<std::byte> bytes(static_cast<size_t>(p.type.bytes()));
    fill(bytes.data(), p.type.bytes());
    e.write_state(p.name, bytes);
  }
  for (int i = 0; i < steps; ++i) {
    for (const Port& p : e.set().programs[0].inputs)
      if (!is_state(p.kind)) fill(e.staging(0, p.name), p.type.bytes());
    e.stage(0, 0);
    e.run(0, 0);
    if (i + 1 < steps) e.synchronize();  // the slot is filled again
  }
  for (const Port& p : e.set().state) {
    std::vector<std::byte> bytes(static_cast<size_t>(p.type.bytes()));
    e.read_state(p.name, bytes);
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  const auto result = e.result("r");
  out.insert(out.end(), result.begin(), result.end());
  return out;
}

}  // namespace lathe::testing
