// partition: graphs of the whole step become those of one rank of the mesh. Samples of batch inputs are divided among
// the ranks; everything else follows from the ops (division.h), so that all ranks together compute what the whole graph
// says: sums over the batch, batch norm, losses of pairs, clipping, whatever it is made of.
//
// State is replicated, but for what shard_state has split, of which each rank has a part, and sums of gradients
// (StateSpec of kind gradient), of which each rank has its share: they are added up once, where an update reads them.
// Rows of the table become those of the rank. Batch inputs become smaller; a step input "rank" comes where a graph
// needs to know whose it is. Metrics and results are those of the whole batch on every rank. Collectives stand in the
// same order in the graphs of all ranks. A mesh of one rank changes nothing.
//
// Input: graphs without `grad`, whose other composites have a kernel. Composites that cannot be divided without
// collectives inside are expanded.
#pragma once

#include "passes/pass.h"

namespace lathe {

StepSet partition(StepSet, const PassContext&);

// How many samples the batch inputs of a graph hold; 0: it has none.
int64_t samples_of(const Graph&);

}  // namespace lathe
