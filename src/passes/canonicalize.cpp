#include "passes/canonicalize.h"

namespace lathe {

Graph canonicalize(Graph g, const PassContext&) {
  std::vector<Rule> rules(arithmetic_rules().begin(), arithmetic_rules().end());
  rules.insert(rules.end(), shape_rules().begin(), shape_rules().end());
  return apply_rules(std::move(g), rules);
}

}  // namespace lathe
