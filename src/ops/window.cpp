#include "ops/window.h"

#include "base/checked.h"
#include "base/error.h"

namespace lathe {
namespace {

struct Room {
  int64_t padded, reach;
};

Room room_of(const char* op, int64_t in, int64_t kernel, int64_t before, int64_t after, int64_t dilation) {
  return {checked_add(in, checked_add(before, after, op), op),
          checked_add(checked_mul(kernel - 1, dilation, op), 1, op)};
}

}  // namespace

int64_t window_count(const char* op, int64_t in, int64_t kernel, int64_t stride, int64_t before, int64_t after,
                     int64_t dilation) {
  const auto [padded, reach] = room_of(op, in, kernel, before, after, dilation);
  return reach <= padded ? (padded - reach) / stride + 1 : 0;
}

WindowAxis window_axis(const char* op, const char* what, int64_t in, int64_t kernel, int64_t stride, int64_t before,
                       int64_t after, int64_t dilation) {
  LATHE_USER_CHECK(kernel >= 1 && stride >= 1 && dilation >= 1 && before >= 0 && after >= 0 && in >= 1,
                   "{}: {}: input {}, kernel {}, stride {}, dilation {}, padding {} and {}", op, what, in, kernel,
                   stride, dilation, before, after);
  const int64_t out = window_count(op, in, kernel, stride, before, after, dilation);
  if (out == 0) {
    const auto [padded, reach] = room_of(op, in, kernel, before, after, dilation);
    throw UserError(fmt::format("{}: {}: the kernel covers {} of a padded input of {}", op, what, reach, padded));
  }
  return {in, out, kernel, stride, before, dilation};
}

}  // namespace lathe
