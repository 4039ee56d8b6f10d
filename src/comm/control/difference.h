// The first difference between the lists of all ranks: what they were started with, and what they are going to do. Long
// lists are compared by hashes of their beginnings, so that only O(log n) messages of a few bytes go over the wire.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace lathe::comm {

struct Item {         // Of a list that has to be the same on all ranks.
  std::string name;   // what it is: "recipe", "collective 17"
  std::string value;  // what this rank has
};

struct Exchange {                                                      // Messages that every rank takes part in.
  std::function<std::vector<std::string>(const std::string&)> gather;  // rank 0: one of each rank; others: nothing
  std::function<std::string(const std::string&)> broadcast;            // what rank 0 gave
};

// One line, the same on all ranks, with the first item that differs, the ranks and their values; empty: nothing does.
std::string find_difference(std::span<const Item>, int rank, const Exchange&);

}  // namespace lathe::comm
