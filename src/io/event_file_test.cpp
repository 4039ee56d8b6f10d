#include "io/event_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "io/test_util.h"

namespace lathe::io {
namespace {

TEST(EventFile, Checksum) {
  // The check value of CRC-32C, and two of RFC 3720's examples.
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST(EventFile, BytesAreThoseOfTheFormat) {
  const TempDir dir;
  {
    EventFile f(dir.path(), 0, 2.5);
    f.scalar("loss", 300, 0.5, 2.5);
    f.flush();
  }
  const auto entry = *std::filesystem::directory_iterator(dir.path());
  std::ifstream in(entry.path(), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const auto little = [&](size_t at, int count) {
    uint64_t v = 0;
    for (int i = count; i-- > 0;) v = v << 8 | static_cast<uint8_t>(bytes[at + static_cast<size_t>(i)]);
    return v;
  };
  std::vector<std::string> events;
  for (size_t at = 0; at < bytes.size();) {
    const uint64_t length = little(at, 8);
    const auto unmask = [](uint64_t m) {
      const uint32_t r = static_cast<uint32_t>(m) - 0xa282ead8u;
      return r >> 17 | r << 15;
    };
    EXPECT_EQ(unmask(little(at + 8, 4)), crc32c(bytes.substr(at, 8)));
    events.push_back(bytes.substr(at + 12, length));
    EXPECT_EQ(unmask(little(at + 12 + length, 4)), crc32c(events.back()));
    at += 16 + length;
  }
  ASSERT_EQ(events.size(), 2u);
  const std::string time("\x09\0\0\0\0\0\0\x04\x40", 9);  // 2.5
  EXPECT_EQ(events[0], time +
                           "\x1a\x0d"
                           "brain.Event:2");
  EXPECT_EQ(events[1], time +
                           "\x10\xac\x02"
                           "\x2a\x0d\x0a\x0b\x0a\x04loss\x15" +
                           std::string("\0\0\0\x3f", 4));
}

TEST(EventFile, NeverOverAnother) {
  const TempDir dir;
  const EventFile a(dir.path(), 0, 7), b(dir.path(), 5, 7);
  int count = 0;
  for ([[maybe_unused]] const auto& e : std::filesystem::directory_iterator(dir.path())) ++count;
  EXPECT_EQ(count, 2);
  EXPECT_THROW(EventFile(dir / "none", 0, 7), UserError);
}

}  // namespace
}  // namespace lathe::io
