#include "passes/dce.h"

#include "ir/live_nodes.h"

namespace lathe {

Graph dce(Graph g, const PassContext&) { return drop_dead(std::move(g)); }

}  // namespace lathe
