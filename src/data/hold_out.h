// hold_out: a part of the training samples that is kept for validation. Which samples they are is a function of the
// seed, the number of samples and their classes alone. Both parts are views of the source: no sample is copied.
#pragma once

#include "data/source.h"

namespace lathe::data {

struct HeldOut {                                    // A source in two parts.
  std::shared_ptr<const Source> train, validation;  // train: in the order of the source; validation: shuffled
  uint64_t fingerprint = 0;                         // of the choice: another one if other samples are held out
};

// How many of `samples` a share in [0, 1) is: rounded down.
int64_t held_out_count(double share, int64_t samples);

// Holds `count` samples out, more than none and fewer than all. Where a sample has one class, each class gives its
// share: the exact one rounded down or up, so that the sum is `count`; those with the largest fractions are rounded up,
// but the last sample of a class stays in training where another class has more.
HeldOut hold_out(std::shared_ptr<const Source> whole, int64_t count, uint64_t seed);

// Memory that the two views take together.
int64_t hold_out_bytes(int64_t samples);

bool has_labels(const Source&);                 // field 1 is a class of the whole sample
std::vector<int32_t> labels_of(const Source&);  // the class of every sample; reads samples where label() has none

}  // namespace lathe::data
