// Settings that several sources have: each is declared here once.
#pragma once

#include "base/schema.h"

namespace lathe {

struct Sized {  // Images are as large as the recipe says.
  Ints shape{28, 28, 1};
  static void fields(auto&& f) {
    f("shape", &Sized::shape, allow::list(allow::range(1, 65536), 3, 3),
      "height, width, channels of images; PNG files are scaled and cropped to that")
        .listed_after("data.classes");
  }
};

// `row` and `standardize` of samples that are numbers.
template <class P>
void number_fields(auto&& f) {
  f("row", &P::row, allow::range(0, 1 << 20),
    "numbers per row for families that read rows, as lstm and bert do; 0: all in one row")
      .listed_after("data.target");
  f("standardize", &P::standardize, "numbers get mean 0 and deviation 1, column by column, as on the training samples");
}

}  // namespace lathe
