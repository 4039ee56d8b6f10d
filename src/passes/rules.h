// Local rewrites as rows: {name, op, build}, applied by one driver until no row fires. The tables are grouped by theme
// (canonicalize_arithmetic.cpp, canonicalize_shape.cpp, fold.cpp, layout.cpp).
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ir/rewrite.h"

namespace lathe {

// What a row sees: one node of the source whose inputs are already rewritten, and the new graph behind them.
class Match {
 public:
  Match(Builder& builder, const Node& node, const Values& inputs, const TensorType& type,
        const std::vector<int32_t>& definitions, const std::vector<int32_t>& uses)
      : b(builder), n(node), x(inputs), out(type), def_(definitions), uses_(uses) {}

  Builder& b;
  const Node& n;
  const Values& x;
  const TensorType& out;

  bool is(Value v, std::string_view op) const;    // v is the result of such a node
  const Node* node(Value v) const;                // which defines v; null for inputs. Dies when a node is added
  Value arg(Value v, int i = 0) const;            // input i of the node that defines v
  std::optional<double> constant(Value v) const;  // v is this number everywhere
  bool only_use(Value v) const;                   // nobody else reads v: replacing it saves its node
  template <class P>
  const P& params(Value v) const {  // lives as long as the graph
    return node(v)->get<P>();
  }

 private:
  const std::vector<int32_t>& def_;
  const std::vector<int32_t>& uses_;
};

struct Rule {
  std::string_view name;
  std::string_view op;           // empty: any op with one output
  Value (*build)(const Match&);  // the replacement, of the same type; an invalid Value where the row does not apply
};

struct Fired {
  std::string_view rule;
  int64_t count = 0;
};

// Applies the rows until none fires; nodes that died on the way are gone. Where no row fires the graph is returned as
// it is. `fired` gets the rows that did, in the order of the table.
Graph apply_rules(Graph, std::span<const Rule>, std::vector<Fired>* fired = nullptr);

}  // namespace lathe
