// State of a run: first values, and the way to and from safetensors files (PyTorch's names and axis order).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "ir/step_set.h"
#include "run/executor.h"
#include "session/session.h"

namespace lathe {

// First values of a state tensor of f32, elements `begin` (a multiple of 1024) and following: a function of (seed,
// name, init) alone.
void initial_values(const StateSpec&, int64_t seed, int64_t begin, std::span<float> out);
// The row whose first value a row has: that which it is like, if the table has it, or itself.
const StateSpec& first_value_of(const StateSpec&, const StateTable&);
void initialize_state(Executor&, const StateTable&, int64_t seed);

// The axes of a tensor as memory has them <-> as files have them. `bytes` and `out` do not overlap.
void to_file_order(const StateSpec&, std::span<const std::byte> bytes, std::span<std::byte> out);
void from_file_order(const StateSpec&, std::span<const std::byte> bytes, std::span<std::byte> out);
TensorType file_type(const StateSpec&);

// The files of a checkpoint: weights and buffers; what only training needs; averages of weights and buffers, under the
// names of what they average, with those that are not averaged (frozen weights) as they are.
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
inline constexpr const char* kAverageFile = "average.safetensors";

// The state of the executor as checkpoint files; no average file where nothing is averaged. Their content is the state
// at the time when they are written, tensor by tensor. One that ranks have parts of is gathered when
// its turn comes to be written, by all of them: every rank writes the files at the same time.
std::vector<io::CheckpointFile> state_files(Executor&, const StateTable&, Keep = Keep::all);

// Reads every tensor of `specs` from its file in the checkpoint's directory. `verified`: what is known of the files;
// without their hashes, values that are not finite are damage. UserError: missing names, other types (of all files
// listed), damage; nothing was written then.
void load_state(Executor&, const StateTable&, io::Fs&, const std::string& checkpoint, io::Verify verified,
                Keep = Keep::all);

}  // namespace lathe
