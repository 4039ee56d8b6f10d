#include "data/formats/pnm.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lathe::data {
namespace {

std::string error_of(const std::string& text, int64_t file_bytes = -1) {
  try {
    parse_pnm_header(std::as_bytes(std::span(text.data(), text.size())),
                     file_bytes < 0 ? static_cast<int64_t>(text.size()) : file_bytes, "x.pgm");
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(Pnm, Reads) {
  const std::string text = "P6 # width\n2\t3 # rest\n 255\n" + std::string(18, 'x');
  const PnmHeader h =
      parse_pnm_header(std::as_bytes(std::span(text.data(), text.size())), static_cast<int64_t>(text.size()), "x.ppm");
  EXPECT_EQ(h.shape, Shape({3, 2, 3}));
  EXPECT_EQ(h.bytes, static_cast<int64_t>(text.size()) - 18);
}

TEST(Pnm, HostileHeaders) {
  struct Row {
    std::string text, words;
  };
  const Row rows[] = {
      {"", "P5"},
      {"P4 1 1 255\nx", "P5"},
      {"P5", "ends at byte 2"},
      {"P5 ", "ends at byte 3"},
      {"P5 12", "within the width"},
      {"P5 1 2", "within the height"},
      {"P5 1 2 25", "within the largest value"},
      {"P512 1 255\nx", "byte 2: expected the width"},
      {"P5 x 1 255\n", "byte 3"},
      {"P5 -1 1 255\n", "byte 3"},
      {"P5 99999999999999999999999 1 255\n", "from 1 to 65536"},
      {"P5 16777216123 1 255\n", "from 1 to 65536"},
      {"P5 0 1 255\n", "got 0"},
      {"P5 1 1 0\nx", "got 0"},
      {"P5 1 1 65535\nxx", "8 bits"},
      {"P5 1 1 15\nx", "8 bits"},
      {"P5 1 1 70000\nx", "from 1 to 65535"},
      {"P5 1 1 255x", "white space"},
      {"P5 2 2 255\nxxx", "truncated"},
      {"P5 2 2 255\nxxxxx", "too long"},
      {"P5 65536 65536 255\nx", "truncated"},
      {"P5 # no end", "ends at byte"},
  };
  for (const Row& row : rows)
    EXPECT_NE(error_of(row.text).find(row.words), std::string::npos) << row.text << ": " << error_of(row.text);
  EXPECT_EQ(error_of("P5 2 2 255\nxxxx"), "");
  EXPECT_NE(error_of("P5 #" + std::string(1 << 17, 'c')).find("header ends"), std::string::npos);
}

}  // namespace
}  // namespace lathe::data
