// average: training keeps averages of the weights that it trains and of running statistics beside them; evaluation and
// prediction read the averages instead. The share of the new value in the average is the step input "average": of
// exponential and of equal shares (EMA, SWA) alike. Of several networks each step advances the averages of its own.
// Last of the techniques: it reads what a gated step leaves behind.
#pragma once

#include <string_view>

#include "passes/pass.h"

namespace lathe {

struct AverageOptions {           // Of the pass average. What is averaged when is the step input's to say.
  double ema = 0;                 // decay; 0: no exponential average
  int64_t swa_from = 0;           // epoch; 0: no average of equal shares
  static void fields(auto&& f) {  // keys of recipes
    f("train.ema", &AverageOptions::ema, allow::below(0, 1),
      "decay of a moving average of the weights, which evaluation and prediction use, like 0.999; 0: off")
        .listed_after("train.sam");
    f("train.swa_from", &AverageOptions::swa_from, allow::range(0, 1e6),
      "epoch from whose end on the weights at the ends of epochs are averaged, for evaluation and prediction; 0: off");
  }
  static bool is_on(const AverageOptions& o) { return o.ema > 0 || o.swa_from > 0; }  // see OptionsRow
  static AverageOptions inert() { return {0.9}; }                                     // see OptionsRow
  static void check(const PassOptions&, RuleReport&);                                 // one average alone
};
inline constexpr std::string_view kAveragePrefix = "average.";  // of the names of their state

StepSet average(StepSet, const PassContext&);  // see the top of the file

}  // namespace lathe
