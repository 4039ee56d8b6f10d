// gradient: the gradient of one parameter as the optimizer gets it. An identity with a name: techniques that change
// gradients (clipping, accumulation, gates) work on these nodes; `expand` removes them.
#pragma once

#include <string>

#include "ir/builder.h"

namespace lathe {

struct GradientParams {
  std::string of;  // name of the parameter
  friend bool operator==(const GradientParams&, const GradientParams&) = default;
  template <class F>
  static void fields(F&& f) {
    f("of", &GradientParams::of);
  }
};

extern const OpDef gradient_op;
Value gradient(Value x, const std::string& of);  // of the parameter's shape

}  // namespace lathe
