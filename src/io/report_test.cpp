#include "io/report.h"

#include <gtest/gtest.h>
#include <libdeflate.h>

#include <cmath>
#include <limits>

#include "io/png.h"

namespace lathe::io {
namespace {

uint32_t big_endian(const std::string& s, size_t at) {
  uint32_t v = 0;
  for (size_t i = 0; i < 4; ++i) v = v << 8 | static_cast<uint8_t>(s[at + i]);
  return v;
}

TEST(Png, HoldsThePixels) {
  std::vector<uint8_t> pixels;
  for (int i = 0; i < 5 * 7 * 3; ++i) pixels.push_back(static_cast<uint8_t>(37 * i));
  const std::string png = encode_png(pixels, 5, 7, 3);
  ASSERT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  std::string packed;
  for (size_t at = 8; at < png.size();) {
    const uint32_t length = big_endian(png, at);
    const std::string type = png.substr(at + 4, 4), body = png.substr(at + 8, length);
    EXPECT_EQ(big_endian(png, at + 8 + length), libdeflate_crc32(0, png.data() + at + 4, length + 4)) << type;
    if (type == "IHDR") {
      EXPECT_EQ(big_endian(body, 0), 7u);
      EXPECT_EQ(big_endian(body, 4), 5u);
      EXPECT_EQ(body.substr(8), std::string("\x08\x02\0\0\0", 5));
    }
    if (type == "IDAT") packed = body;
    at += 12 + length;
  }
  std::string rows(5 * (1 + 7 * 3), '?');
  auto* d = libdeflate_alloc_decompressor();
  EXPECT_EQ(libdeflate_zlib_decompress(d, packed.data(), packed.size(), rows.data(), rows.size(), nullptr),
            LIBDEFLATE_SUCCESS);
  libdeflate_free_decompressor(d);
  for (size_t y = 0; y < 5; ++y) {
    EXPECT_EQ(rows[y * 22], '\0');
    for (size_t x = 0; x < 21; ++x) EXPECT_EQ(static_cast<uint8_t>(rows[y * 22 + 1 + x]), pixels[y * 21 + x]);
  }
}

TEST(Png, Base64) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
}

TEST(Report, EscapesNamesAndLeavesOutWhatIsNotThere) {
  Report r;
  r.title = "<script>alert(1)</script>";
  r.facts = {{"a & b", "\"1\""}};
  r.parts.push_back({"empty", "text alone is no part", "", {}, {}});
  r.parts.push_back({"table", "", "", {}, {{"x<y"}, {{"'q'"}, {"a_name.of/parts-1.25"}, {std::string(60, 'w')}}}});
  const std::string html = report_html(r);
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_NE(html.find("&lt;script&gt;"), std::string::npos);
  EXPECT_NE(html.find("a &amp; b"), std::string::npos);
  EXPECT_EQ(html.find("text alone"), std::string::npos);
  EXPECT_NE(html.find("x&lt;y"), std::string::npos);
  EXPECT_NE(html.find(">a_<wbr>name.<wbr>of/<wbr>parts-1.25<"), std::string::npos)
      << "may break in names, not in numbers";
  EXPECT_NE(html.find("<td class=long>www"), std::string::npos);
  for (const char* outside : {"http", "src='/", "@import", "url("}) EXPECT_EQ(html.find(outside), std::string::npos);
}

TEST(Report, ChartsSurviveAnyNumbers) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  EXPECT_EQ(line_chart({"x", "y", {{"a", {1, 2}, {nan, inf}}}}), "");
  EXPECT_EQ(line_chart({"x", "y", {}}), "");
  for (const std::vector<double>& y : {std::vector<double>{1, nan, 3}, {5, 5, 5}, {0, 0, 0}, {-1e300, 0, 1e300}}) {
    const std::string s = line_chart({"x", "y", {{"a", {1, 2, 3}, y}}});
    EXPECT_NE(s.find("<polyline"), std::string::npos);
    EXPECT_EQ(s.find("nan"), std::string::npos) << s;
    EXPECT_EQ(s.find("inf"), std::string::npos) << s;
  }
  const std::string roof =
      roofline_chart({1e11, 1e10, {{"none", 0, 1e6, 1e-3}, {"all", 1e9, 1, 1e-9}, {"no", 1, 0, 1}}});
  EXPECT_EQ(roof.find("nan"), std::string::npos);
  EXPECT_EQ(roof.find("inf"), std::string::npos);
}

TEST(Report, StackReachesTheSum) {
  // Two series of 1 and 3: the upper edge of the second lies at 4, the highest place that the axis marks.
  const std::string s = stack_chart({"x", "y", {"a", "b"}, {{1, 1}, {0, 3}}});
  EXPECT_NE(s.find(">4</text>"), std::string::npos) << s;
  EXPECT_EQ(s.find(">5</text>"), std::string::npos) << s;
}

TEST(Svg, LogarithmicChartsAsFiles) {
  LineChart c{"rate", "loss", {{"loss", {0, 1e-3, 1e-2, 1e-1}, {9, 3, 2, 1}}}, true, {{1e-2, "here < there"}}};
  const std::string s = svg_file(c);
  EXPECT_EQ(s.find("<svg xmlns='http://www.w3.org/2000/svg'"), 0u) << s;
  EXPECT_NE(s.find("here &lt; there"), std::string::npos);
  EXPECT_NE(s.find("points='92.0,42.0 352.0,158.0 612.0,274.0 '"), std::string::npos) << s;  // decades are equally wide
  // XML: every attribute is quoted.
  for (size_t i = s.find('='); i != s.npos; i = s.find('=', i + 1)) EXPECT_EQ(s[i + 1], '\'') << s.substr(i - 10, 30);
  c.lines[0].y.assign(4, std::nan(""));
  EXPECT_EQ(svg_file(c), "");
}

}  // namespace
}  // namespace lathe::io
