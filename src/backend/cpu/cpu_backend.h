// cpu: the embedded default backend. Own packed matrix multiply and SIMD loops on host memory; threads never change
// results.
#pragma once

#include "backend/backend.h"

namespace lathe {

const Backend& cpu_backend();

}  // namespace lathe
