#include "passes/techniques/lookahead.h"

#include "ops/elementwise.h"
#include "passes/techniques/gradients.h"

namespace lathe {

StepSet lookahead(StepSet set, const PassContext&) {
  for (Graph& graph : set.graphs) {
    if (!has_gradients(graph)) continue;
    Edit e(std::move(graph));
    Builder& b = e.builder();
    const Origin origin(b, "lookahead", Role::update);
    const Value share = b.input({DType::f32, {}}, InputKind::step, "lookahead");
    const size_t count = e.graph().outputs.size();
    for (size_t i = 0; i < count; ++i) {
      const Output o = e.graph().outputs[i];
      const StateSpec* p = o.kind == OutputKind::state ? set.state.find(o.name) : nullptr;
      if (!p || p->kind != InputKind::param) continue;
      const Value slow = e.state_input({p->name + ".slow", p->type, InputKind::optimizer, p->init, p->file, p->name,
                                        p->name, true, StateFile::optimizer},
                                       set.state);
      const Value now = e.value(o.value);
      const Value moved = slow + (now - slow) * share;
      e.set_output(i, select(greater(share, constant_like(share, 0)), moved, now));
      b.update(slow, moved);
    }
    graph = e.finish();
  }
  return set;
}

}  // namespace lathe
