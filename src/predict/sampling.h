// The choice of the next token from a model's logits: temperature, then the k most likely, then of those the fewest
// that together reach a probability of p (nucleus sampling; Holtzman et al., 2020). A pure function.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lathe {

struct Sampling {            // How tokens are drawn.
  double temperature = 0.8;  // 0: always the most likely token; the first of equals
  int64_t top_k = 0;         // 0: all tokens
  double top_p = 1;          // 1: all tokens
  uint64_t seed = 0;         // of the draws
};

std::vector<double> softmax_of(std::span<const float> logits);  // probabilities

// UserError with Exit::usage where a value is out of its range.
void check_sampling(const Sampling&);

// `position` counts the tokens of one text: equal seeds, positions and logits give equal tokens. UserError where a
// logit is not finite.
int64_t sample_token(std::span<const float> logits, const Sampling&, uint64_t position);

}  // namespace lathe
