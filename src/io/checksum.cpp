#include "io/checksum.h"

#include "io/hash.h"

namespace lathe::io {
namespace {

constexpr std::string_view kChecksumKey = ",\n  \"checksum\": \"";

std::string member_for(std::string_view before) {
  return fmt::format("{}{}\"\n}}\n", kChecksumKey, hash_bytes(bytes_of(before)));
}

}  // namespace

std::string with_checksum(std::string object) {
  LATHE_CHECK(object.ends_with("\n}"), "no object of several lines");
  object.resize(object.size() - 2);
  return object + member_for(object);
}

void check_checksum(std::string_view text, std::string_view name) {
  const size_t at = text.rfind(kChecksumKey);
  LATHE_USER_CHECK(at != std::string_view::npos, "{} has no checksum (cut off?)", name);
  LATHE_USER_CHECK(text.substr(at) == member_for(text.substr(0, at)), "{} checksum mismatch: its content hashes to {}",
                   name, hash_bytes(bytes_of(text.substr(0, at))));
}

}  // namespace lathe::io
