// summary.json: what train() did, as one JSON object.
#pragma once

#include <string>

#include "loop/trainer.h"

namespace lathe {

// Numbers of evaluation are named after their set: "test_loss", "validation_accuracy". "test_loss" and "test_accuracy"
// are always there, null where nothing was evaluated; others where there are such numbers. "by_rank": an object for
// each of several ranks. Ends with a line break.
std::string summary_json(const TrainResult&);

}  // namespace lathe
