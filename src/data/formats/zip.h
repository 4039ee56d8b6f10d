// Members of a zip archive in memory: stored or deflated, without zip64, encryption or parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lathe::data {

struct ZipMember {
  std::string name;
  int64_t bytes = 0;       // unpacked
  int64_t compressed = 0;  // as it stands in the archive
  int64_t offset = 0;      // of the local header
  uint32_t crc = 0;
  int method = 0;  // 0: stored, 8: deflated
};

// UserError with `name` where the directory is wrong.
std::vector<ZipMember> zip_members(std::span<const std::byte> archive, const std::string& name);
// Its content, compared with its checksum. No more than a member of this size can unpack to is allocated.
std::vector<std::byte> unzip(std::span<const std::byte> archive, const ZipMember&, const std::string& name);

}  // namespace lathe::data
