// transpose: permutes axes; output axis i is input axis perm[i].
#pragma once

#include "ir/builder.h"

namespace lathe {

struct TransposeParams {
  Ints perm;  // output axis i is input axis perm[i]
  template <class F>
  static void fields(F&& f) {
    f("perm", &TransposeParams::perm);
  }
};

Value transpose(Value x, Ints perm);    // x itself for the identity
Ints inverse_permutation(const Ints&);  // which undoes it
extern const OpDef transpose_op;

}  // namespace lathe
