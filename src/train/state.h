// State of a run: first values, and the way to and from safetensors files (PyTorch's names and axis order).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "nn/net.h"
#include "run/executor.h"

namespace lathe {

// First value of a state tensor: a function of (seed, name) alone.
void initial_value(const StateSpec&, int64_t seed, std::span<std::byte> out);
void initialize_state(Executor&, const std::vector<StateSpec>&, int64_t seed);

// The axes of a tensor as memory has them <-> as files have them. `bytes` and `out` do not overlap.
void to_file_order(const StateSpec&, std::span<const std::byte> bytes, std::span<std::byte> out);
void from_file_order(const StateSpec&, std::span<const std::byte> bytes, std::span<std::byte> out);
TensorType file_type(const StateSpec&);

inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";

// The state of the executor as checkpoint files: weights and buffers, and the optimizer's. They are written from the
// executor's snapshot, so they are valid until the next one is taken.
std::vector<io::CheckpointFile> state_files(Executor&, const std::vector<StateSpec>&);

// Reads every tensor of `specs` of the given kinds from the file. UserError: missing names, other types (all listed).
void load_state(Executor&, const std::vector<StateSpec>&, io::Fs&, const std::string& path, bool optimizer);

}  // namespace lathe
