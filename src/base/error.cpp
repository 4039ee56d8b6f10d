#include "base/error.h"

#include <string_view>

namespace lathe::detail {

void throw_internal(const char* file, int line, const char* condition, const std::string& message) {
  std::string_view path = file;
  if (auto at = path.rfind("src/"); at != std::string_view::npos) path.remove_prefix(at);
  throw InternalError(fmt::format("internal error at {}:{}: check `{}` failed{}{}", path, line, condition,
                                  message.empty() ? "" : ": ", message));
}

}  // namespace lathe::detail
