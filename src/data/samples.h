// Samples without targets, read to be predicted.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/shape.h"

namespace lathe::data {

struct Samples {                   // Read from a file.
  TensorType type;                 // of one
  std::vector<std::byte> bytes;    // one after another
  std::vector<std::string> names;  // of each, for people: "new.csv:12", "x.npy:3"
};

}  // namespace lathe::data
