// NameSet: tells whether names are unique, for thousands of them. They are not copied: they outlive the set.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace lathe {

class NameSet {
 public:
  explicit NameSet(size_t most) : slots_(std::bit_ceil(2 * most + 1)) {}  // room for so many names

  bool insert(std::string_view name) {  // false: it is there already
    const size_t hash = std::hash<std::string_view>{}(name);
    for (size_t i = hash;; ++i) {
      Slot& s = slots_[i & (slots_.size() - 1)];
      if (!s.name.data()) {
        s = {name, hash};
        return true;
      }
      if (s.hash == hash && s.name == name) return false;
    }
  }

 private:
  struct Slot {
    std::string_view name;
    size_t hash = 0;
  };
  std::vector<Slot> slots_;  // open addressing; their number is a power of two
};

}  // namespace lathe
