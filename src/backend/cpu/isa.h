// Which instruction set the cpu kernels run with. Results are the same bits for equal instruction sets only, so
// checkpoints record active_isa().
#pragma once

#include <string_view>
#include <vector>

namespace lathe::cpu {

std::string_view active_isa();                   // "sse4", "avx2", "avx512", "neon", ...
std::vector<std::string_view> available_isas();  // compiled in and supported by this machine, best first

// Makes later kernels use `isa`; an empty name returns to the best one. UserError when the name is unknown or the
// machine lacks it. Not to be called while kernels run.
void force_isa(std::string_view isa);

// Applies the environment variable LATHE_ISA, where it is set, by force_isa.
void force_isa_from_environment();

}  // namespace lathe::cpu
