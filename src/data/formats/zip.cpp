#include "data/formats/zip.h"

#include <libdeflate.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/error.h"

namespace lathe::data {
namespace {

constexpr int64_t kEndBytes = 22, kEntryBytes = 46, kLocalBytes = 30;
constexpr int64_t kMaxComment = 65535;
constexpr int64_t kMaxZipRatio = 1032;  // that deflate can expand by

// Little-endian numbers within bounds.
class ZipBytes {
 public:
  ZipBytes(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  uint32_t number(int64_t at, int count) const {
    check(at, count);
    uint32_t v = 0;
    for (int i = count - 1; i >= 0; --i)
      v = v << 8 | std::to_integer<uint32_t>(bytes_[static_cast<size_t>(at) + static_cast<size_t>(i)]);
    return v;
  }
  std::string text(int64_t at, int64_t count) const {
    check(at, count);
    return {reinterpret_cast<const char*>(bytes_.data()) + at, static_cast<size_t>(count)};
  }
  void check(int64_t at, int64_t count) const {
    const auto size = static_cast<int64_t>(bytes_.size());
    LATHE_USER_CHECK(at >= 0 && count >= 0 && at <= size && count <= size - at,
                     "{}: truncated or damaged zip archive: expected {} bytes from byte {}, of {}", name_, count, at,
                     size);
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& name_;
};

}  // namespace

std::vector<ZipMember> zip_members(std::span<const std::byte> archive, const std::string& name) {
  const ZipBytes z(archive, name);
  const auto size = static_cast<int64_t>(archive.size());
  int64_t end = size - kEndBytes;
  const int64_t lowest = std::max<int64_t>(0, end - kMaxComment);
  while (end >= lowest && z.number(end, 4) != 0x06054b50) --end;
  LATHE_USER_CHECK(end >= lowest, "{}: expected a zip archive, found no directory of one at its end", name);
  const int64_t count = z.number(end + 10, 2);
  int64_t at = z.number(end + 16, 4);
  LATHE_USER_CHECK(count != 0xffff && at != 0xffffffff && z.number(end + 4, 2) == 0,
                   "{}: expected a zip archive of less than 4 GiB in one part", name);
  std::vector<ZipMember> out;
  for (int64_t i = 0; i < count; ++i) {
    z.check(at, kEntryBytes);
    LATHE_USER_CHECK(z.number(at, 4) == 0x02014b50, "{}: damaged zip archive: no member at byte {}", name, at);
    ZipMember m;
    LATHE_USER_CHECK((z.number(at + 8, 2) & 1) == 0, "{}: expected members without encryption", name);
    m.method = static_cast<int>(z.number(at + 10, 2));
    m.crc = z.number(at + 16, 4);
    m.compressed = z.number(at + 20, 4);
    m.bytes = z.number(at + 24, 4);
    m.offset = z.number(at + 42, 4);
    const int64_t name_bytes = z.number(at + 28, 2);
    m.name = z.text(at + kEntryBytes, name_bytes);
    LATHE_USER_CHECK(m.bytes != 0xffffffff && m.compressed != 0xffffffff && m.offset != 0xffffffff,
                     "{}: expected members of less than 4 GiB", name);
    at += kEntryBytes + name_bytes + z.number(at + 30, 2) + z.number(at + 32, 2);
    out.push_back(std::move(m));
  }
  return out;
}

std::vector<std::byte> unzip(std::span<const std::byte> archive, const ZipMember& m, const std::string& name) {
  const ZipBytes z(archive, name);
  LATHE_USER_CHECK(z.number(m.offset, 4) == 0x04034b50, "{}: damaged zip archive: no member at byte {}", name,
                   m.offset);
  const int64_t begin = m.offset + kLocalBytes + z.number(m.offset + 26, 2) + z.number(m.offset + 28, 2);
  z.check(begin, m.compressed);
  LATHE_USER_CHECK(m.method == 0 || m.method == 8, "{}: expected a stored or deflated member, got method {}", name,
                   m.method);
  const auto packed = archive.subspan(static_cast<size_t>(begin), static_cast<size_t>(m.compressed));
  LATHE_USER_CHECK(m.method == 0 ? m.bytes == m.compressed : m.bytes / kMaxZipRatio <= m.compressed,
                   "{}: damaged zip archive: {} bytes cannot come from {}", name, m.bytes, m.compressed);
  std::vector<std::byte> out(static_cast<size_t>(m.bytes));
  if (m.method == 0) {
    std::ranges::copy(packed, out.begin());
  } else {
    struct Free {
      void operator()(libdeflate_decompressor* d) const { libdeflate_free_decompressor(d); }
    };
    const std::unique_ptr<libdeflate_decompressor, Free> d(libdeflate_alloc_decompressor());
    if (!d) throw UserError("zip: out of memory", Exit::os_error);
    const auto result =
        libdeflate_deflate_decompress(d.get(), packed.data(), packed.size(), out.data(), out.size(), nullptr);
    LATHE_USER_CHECK(result == LIBDEFLATE_SUCCESS, "{}: damaged zip archive: the member does not unpack to {} bytes",
                     name, m.bytes);
  }
  LATHE_USER_CHECK(libdeflate_crc32(0, out.data(), out.size()) == m.crc, "{}: damaged zip archive: wrong checksum",
                   name);
  return out;
}

}  // namespace lathe::data
