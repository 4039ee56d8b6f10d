// The first half of the pipeline: techniques. What they do to a step is part of it from here on; `grad` is still one
// node. A row is a pass; its options struct makes recipe keys. The second half is in pipeline.cpp.
#pragma once

#include "passes/pass.h"
#include "passes/techniques/accumulate.h"
#include "passes/techniques/average.h"
#include "passes/techniques/centralize.h"
#include "passes/techniques/clip_norm.h"
#include "passes/techniques/clip_value.h"
#include "passes/techniques/gate.h"
#include "passes/techniques/lookahead.h"
#include "passes/techniques/loss_scale.h"
#include "passes/techniques/sam.h"

namespace lathe {

// In their order.
inline constexpr PassEntry kTechniques[] = {
    {"sam", sam, Level::tensor, false, kTouchesNothing, Promise::changes, kOptions<SamOptions>},
    // All below see the graph in which gradients meet parameters.
    {"accumulate", accumulate, Level::tensor, true, kTouchesState | kTouchesPorts | kTouchesGraphs, Promise::preserves,
     kOptions<AccumulateOptions>},
    {"centralize", centralize, Level::tensor, false, kTouchesNothing, Promise::changes, kOptions<CentralizeOptions>},
    {"clip_value", clip_value, Level::tensor, false, kTouchesNothing, Promise::changes, kOptions<ClipValueOptions>},
    {"lookahead", lookahead, Level::tensor, false, kTouchesState | kTouchesPorts, Promise::changes,
     kOptions<LookaheadOptions>},
    {"clip_norm", clip_norm, Level::tensor, false, kTouchesNothing, Promise::changes, kOptions<ClipNormOptions>},
    // Sees gradients before clip_norm, which stands behind them.
    {"gate", gate, Level::tensor, true, kTouchesPorts, Promise::preserves, kOptions<GateOptions>},
    // Reads the flag of gate.
    {"loss_scale", loss_scale, Level::tensor, false, kTouchesState | kTouchesPorts, Promise::preserves,
     kOptions<LossScaleOptions>},
    // Reads what gate leaves of an update.
    {"average", average, Level::tensor, false, kTouchesState | kTouchesPorts, Promise::changes,
     kOptions<AverageOptions>},
};

}  // namespace lathe
