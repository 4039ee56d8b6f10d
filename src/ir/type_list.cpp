#include "ir/type_list.h"

#include <bit>

#include "ir/attr.h"

namespace lathe {
namespace {

constexpr size_t kFew = 8;  // types that are searched one after the other

uint64_t hash_of(const TensorType& t) {
  uint64_t h = static_cast<uint64_t>(t.dtype);
  for (const int64_t d : t.shape) h = hash_combine(h, static_cast<uint64_t>(d));
  return h;
}

}  // namespace

uint32_t TypeList::number_of(const TensorType& t) {
  if (last_ < types_.size() && types_[last_] == t) return last_;
  const auto add = [&] {
    types_.push_back(TensorType(t));  // a copy: it may be one of the list
    return static_cast<uint32_t>(types_.size() - 1);
  };
  if (slots_.empty()) {
    for (last_ = 0; last_ < types_.size(); ++last_)
      if (types_[last_] == t) return last_;
    if (types_.size() < kFew) return last_ = add();
  }
  if (slots_.size() < 2 * (types_.size() + 1)) {
    slots_.assign(std::bit_ceil(4 * (types_.size() + 1)), 0);
    for (uint32_t i = 0; i < types_.size(); ++i) {
      size_t at = hash_of(types_[i]);
      while (slots_[at & (slots_.size() - 1)] != 0) ++at;
      slots_[at & (slots_.size() - 1)] = i + 1;
    }
  }
  for (size_t at = hash_of(t);; ++at) {
    uint32_t& slot = slots_[at & (slots_.size() - 1)];
    if (slot != 0 && types_[slot - 1] != t) continue;
    if (slot == 0) slot = add() + 1;
    return last_ = slot - 1;
  }
}

}  // namespace lathe
