// What ranks that are processes of their own must have in common before they start, item by item: the program and its
// instruction set, the recipe, the passes, the data, and the collectives of every Program in their order. Of the data
// some samples of each set are compared: other files are found, one other byte need not be. And what ranks find out
// together before they compile.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "comm/control.h"
#include "comm/group.h"
#include "compile/compile.h"
#include "workload/dataset.h"

namespace lathe {

std::vector<comm::Item> fingerprint(const Compiled&, const Dataset&, const PipelineOptions&);
// Every rank calls it. UserError, the same on all: the first difference. `more`: what else has to be the same.
void check_fingerprint(comm::Control&, const Compiled&, const Dataset&, const PipelineOptions&,
                       std::span<const comm::Item> more);

int64_t collectives_in(const Program&);  // how many it runs
double flops_in(const Program&);         // that its kernels compute

// How ranks that train together compile: their mesh, their link, which is measured where it is not given, and their
// buckets. Every rank calls it, whatever its recipe says, and all get the same link and buckets. `run`: the directory
// of a run that goes on; empty: none. Where the recipe leaves buckets open, such a run keeps those that its recipe.toml
// has, so that numbers are added up as before; --set parallel.bucket=auto asks for new ones.
CompileOptions rank_options(CompileOptions, const Recipe&, comm::Group&, const std::string& run);

}  // namespace lathe
