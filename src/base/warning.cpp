#include "base/warning.h"

#include <mutex>

namespace lathe {
namespace {

std::mutex mutex;
WarningSink& sink() {
  static WarningSink one;
  return one;
}

}  // namespace

void set_warning_sink(WarningSink s) {
  const std::lock_guard lock(mutex);
  sink() = std::move(s);
}

void warn(const std::string& text) {
  const std::lock_guard lock(mutex);
  if (sink()) sink()(text);
}

}  // namespace lathe
