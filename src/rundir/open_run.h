// A run directory, opened to use its weights: the recipe that it was trained with and a session with its checkpoint.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compile/compile.h"

namespace lathe {

inline constexpr const char* kCheckpointFolder = "checkpoints";  // within a run directory
inline constexpr const char* kBestFolder = "best";               // within a run directory

enum class Which {  // Which checkpoint of a run.
  newest,           // the last valid one
  best,             // the one with the best evaluation (checkpoint.best)
};

// The recipe stored in a run directory, with overrides. UserError where they would change what the net's outputs mean,
// such as data.label, and where the run is of a model family that this program does not have.
Recipe load_run_recipe(const std::string& run, const std::vector<std::string>& sets);

// `own`, without the passes that the run's checkpoint was trained without: what uses its weights leaves them out, too.
// Custom passes that the run had and `own` has not are named by warn(): only the program that has them can run them.
PipelineOptions passes_of_run(const std::string& run, Which = Which::newest, PipelineOptions own = {});

// A session with the weights of the run's checkpoint, on this device (null: on one that it opens); what is wrong with
// others goes to warn().
std::unique_ptr<Session> open_run(const std::string& run, const Compiled&, Which = Which::newest,
                                  std::unique_ptr<Device> = nullptr);

// The device that a run was trained on, where that is here: its bits continue as they were. None: there is no run, or
// the device is gone; then the checkpoint says that bits will differ.
std::optional<std::string> device_of_run(const std::string& run);

}  // namespace lathe
