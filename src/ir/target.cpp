#include "ir/target.h"

#include <algorithm>

namespace lathe {

bool Target::is_native(std::string_view op) const {
  return std::binary_search(native_ops.begin(), native_ops.end(), op);
}

}  // namespace lathe
