#include "cli/command.h"

namespace lathe::cli {
void add_bench_op(CLI::App&, int&) {}
}  // namespace lathe::cli
