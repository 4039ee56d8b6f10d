// The table of all ops.
#pragma once

#include "ir/op_def.h"

namespace lathe {

const OpRegistry& registry();

}  // namespace lathe
