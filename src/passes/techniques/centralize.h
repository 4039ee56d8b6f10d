// centralize: gradients of weights lose their mean over each output (gradient centralization, Yong et al., 2020). Axis
// 0 of a weight is its outputs, in dense layers [out, in], convolutions [out, height, width, in] and recurrent ones
// [gates, in]: the mean is over all other axes. As in the authors' code, every gradient of two axes or more takes part:
// rows of embeddings too, and transposed convolutions, whose axis 0 is their inputs. Vectors (biases, norms) stay as
// they are. After accumulate, for it is linear: once an update; before clip_value, which bounds what an update sees.
#pragma once

#include "passes/pass.h"

namespace lathe {

struct CentralizeOptions {        // Of the pass centralize.
  bool on = false;                // whether it does
  double part = 1;                // of the mean, which is subtracted; no key: inert() has 0
  static void fields(auto&& f) {  // keys of recipes
    f("train.centralize", &CentralizeOptions::on,
      "subtract from the gradient of each weight of two axes or more its mean over all axes but the first, the outputs")
        .listed_after("train.clip_value");
  }
  static bool is_on(const CentralizeOptions& o) { return o.on; }  // see OptionsRow
  static CentralizeOptions inert() { return {true, 0}; }          // see OptionsRow
};

StepSet centralize(StepSet, const PassContext&);  // see the top of the file

}  // namespace lathe
