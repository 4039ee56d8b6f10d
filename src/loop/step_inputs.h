// What varies from step to step, computed on the host and staged with the batch: pure functions of the recipe and the
// step's number, so that a resumed run continues with the same bits.
#pragma once

#include <string>
#include <vector>

#include "compile/compile.h"
#include "nn/schedule.h"

namespace lathe {

ScheduleRun schedule_of(const Compiled&);  // of the recipe, for its run

// The share of the weights after `step` (from 0) in their average. train.ema: 1 - decay, and more in the beginning, so
// that the average forgets the first weights soon. train.swa_from: equal shares at the ends of epochs, from that epoch
// on; before, the average is the weights themselves.
double average_share(const Recipe&, const TrainingSteps&, int64_t step);
// How far slow weights go after `step`; 0: not in this step.
double lookahead_share(const Recipe&, int64_t step);

// What of the recipe this run ends before, for people: a warning each, since a short trial of a recipe, or the first
// part of a longer run, is no error.
std::vector<std::string> too_short_for(const Compiled&);

// Fills the step inputs of a slot that every training Program has.
void stage_step_inputs(Executor&, int slot, int64_t seed, int64_t step, double lr, double loss_weight);
// And those that the recipe asks for.
void stage_optional_inputs(Executor&, int slot, const Compiled&, int64_t step);
// On several ranks: which one this is, in all slots; the same in all steps.
void stage_rank(Executor&, int slots, int rank);
// On several ranks: whether this one asks all to stop (passes/partition/vote.h).
void stage_vote(Executor&, int slot, bool stop);

}  // namespace lathe
