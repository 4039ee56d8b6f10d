#include "io/page/report.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <png.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "io/page/png.h"

namespace lathe::io {
namespace {

// As libpng reads them.
void expect_pixels(int64_t height, int64_t width, int64_t channels) {
  std::vector<uint8_t> pixels;
  for (int64_t i = 0; i < height * width * channels; ++i) pixels.push_back(static_cast<uint8_t>(37 * i + i / 256));
  const std::string png = encode_png(pixels, height, width, channels);
  ASSERT_TRUE(png.starts_with("\x89PNG\r\n\x1a\n"));
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  ASSERT_TRUE(png_image_begin_read_from_memory(&image, png.data(), png.size())) << image.message;
  EXPECT_EQ(image.height, static_cast<uint32_t>(height));
  EXPECT_EQ(image.width, static_cast<uint32_t>(width));
  EXPECT_EQ(PNG_IMAGE_SAMPLE_CHANNELS(image.format), static_cast<uint32_t>(channels));
  EXPECT_EQ(PNG_IMAGE_SAMPLE_COMPONENT_SIZE(image.format), 1u);
  std::vector<uint8_t> back(PNG_IMAGE_SIZE(image));
  ASSERT_TRUE(png_image_finish_read(&image, nullptr, back.data(), 0, nullptr)) << image.message;
  EXPECT_EQ(back, pixels);
}

TEST(Png, HoldsThePixels) {
  for (const int64_t channels : {1, 3, 4}) {
    expect_pixels(5, 7, channels);
    expect_pixels(1, 1, channels);
  }
  expect_pixels(300, 517, 3);
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

size_t count_of(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t i = text.find(part); i != text.npos; i = text.find(part, i + part.size())) ++n;
  return n;
}

// What stands between <text ...> and </text>.
std::vector<std::string> texts_of(const std::string& svg) {
  std::vector<std::string> out;
  for (size_t i = svg.find("<text"); i != svg.npos; i = svg.find("<text", i + 1)) {
    const size_t begin = svg.find('>', i) + 1;
    out.push_back(svg.substr(begin, svg.find('<', begin) - begin));
  }
  return out;
}

TEST(SvgText, NumbersOfAnAxisDiffer) {
  EXPECT_EQ(tick_number(0.9772, 0.0002), "0.9772");
  EXPECT_EQ(tick_number(0.5, 0.5), "0.5");
  EXPECT_EQ(tick_number(1500, 500), "1.5k");
  EXPECT_EQ(tick_number(100020, 20), "100.02k");
  EXPECT_EQ(tick_number(3e-6, 1e-6), "3e-06");
  EXPECT_EQ(short_number(999.9), "1k");
  EXPECT_EQ(short_number(0.9997, 5), "0.9997");
  for (const auto& [low, high] : {std::pair{0.97701, 0.97745},
                                  {99990.0, 100050.0},
                                  {1e-7, 9e-7},
                                  {0.0, 123456.0},
                                  {-3e-4, 2e-4},
                                  {999.5, 1000.5},
                                  {1e17, 1.0002e17}}) {
    auto texts = texts_of(line_chart({"", "", {{"", {7e8, 7e8 + 9}, {low, high}}}}));
    std::erase(texts, "");
    ASSERT_GE(texts.size(), 7u);
    std::ranges::sort(texts);
    EXPECT_EQ(std::ranges::adjacent_find(texts), texts.end()) << low << " to " << high;
  }
}

TEST(SvgText, CutsBetweenCharacters) {
  EXPECT_EQ(shortened("Überraschung", 20), "Überraschung");
  const std::string cut = shortened("ÜÜÜÜÜÜÜÜÜÜÜÜ", 5);
  EXPECT_TRUE(cut.ends_with("Ü…")) << cut;
  EXPECT_LE(text_width(cut), 5);
  EXPECT_GT(text_width("漢字"), text_width("il"));
}

TEST(Svg, OneValueHasOneMark) {
  const std::string constant = line_chart({"step", "rate", {{"rate", {1, 2, 3}, {1e-3, 1e-3, 1e-3}}}});
  EXPECT_NE(constant.find(">0.001</text>"), std::string::npos) << constant;
  EXPECT_EQ(constant.find("0.00105"), std::string::npos);
  EXPECT_EQ(texts_of(line_chart({"step", "loss", {{"a", {700}, {0.25}}}})),
            (std::vector<std::string>{"700", "0.25", "step", "loss"}));
}

TEST(Svg, ManyLinesAreToldApart) {
  LineChart c{"step", "loss", {}};
  for (int i = 0; i < 40; ++i)
    c.lines.push_back({fmt::format("run-{}", i), {1, 2}, {1.0 + i, i == 3 ? std::nan("") : 2.0 + i}});
  c.lines[5].y = {std::nan(""), std::nan("")};
  const std::string s = svg_file(c);
  EXPECT_EQ(s.find(">run-5,"), std::string::npos) << "has no point";
  std::vector<std::string> styles;
  std::vector<double> rows;
  double height = 0;
  for (size_t i = s.find("viewBox='0 0 640 "); i != s.npos; i = s.npos) height = std::stod(s.substr(i + 17));
  for (size_t i = s.find("<polyline class='"); i != s.npos; i = s.find("<polyline class='", i + 1))
    styles.push_back(s.substr(i, s.find("' points", i) - i));
  EXPECT_EQ(styles.size(), 39u);
  std::ranges::sort(styles);
  EXPECT_EQ(std::ranges::adjacent_find(styles), styles.end()) << "colour and dashes";
  for (size_t i = s.find("<text x='"); i != s.npos; i = s.find("<text x='", i + 1)) {
    const size_t y = s.find("y='", i) + 3;
    if (s.substr(s.find('>', i), 5) != ">run-") continue;
    rows.push_back(std::stod(s.substr(y)));
    EXPECT_GT(rows.back(), 330) << "below the curves";
    EXPECT_LT(rows.back(), height);
  }
  ASSERT_EQ(rows.size(), 39u);
  std::ranges::sort(rows);
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  for (size_t i = 1; i < rows.size(); ++i) EXPECT_DOUBLE_EQ(rows[i] - rows[i - 1], rows[1] - rows[0]) << "no hole";
  EXPECT_NE(line_chart(c).find("<title>run-39, step 2: 41</title>"), std::string::npos);
  c.last_values = false;
  EXPECT_EQ(svg_file(c).find("last"), std::string::npos);
}

TEST(Svg, LanesHaveRows) {
  LaneChart c{"ms", 10, {"computes", "", "waits <"}, {}};
  EXPECT_EQ(lane_chart(c), "");
  const double nan = std::nan("");
  c.lanes.push_back({"rank 0 on h&m", {{{0, 0, 4}, {2, 4, 5}, {0, nan, 3}, {0, 7, 7}}, {{2, -3, 40}}}});
  c.lanes.push_back({"rank 1", {{{0, 11, 12}}, {}}});
  const std::string s = lane_chart(c);
  EXPECT_EQ(s.find("nan"), s.npos) << s;
  EXPECT_EQ(count_of(s, "class='ground'"), 2u);
  EXPECT_EQ(count_of(s, "<title>"), 3u) << "within the axis, with a length";
  EXPECT_NE(s.find("<title>rank 0 on h&amp;m computes: 0 to 4</title>"), s.npos) << s;
  EXPECT_NE(s.find("waits &lt;</span>"), s.npos) << "in the legend";
  EXPECT_EQ(count_of(s, "<span>"), 2u);
  EXPECT_EQ(texts_of(s),
            (std::vector<std::string>{"0", "2", "4", "6", "8", "10", "rank 0 on h&amp;m", "rank 1", "ms"}));
  c.lanes[0].rows = {{{0, 20, 30}}};
  EXPECT_EQ(lane_chart(c), "") << "nothing is within the axis";
}

TEST(Svg, ConfusionsOfManyClasses) {
  std::vector<std::string> labels{"ein langer Name für eine Klasse", "b"};
  const std::string two = confusion_chart(labels, {3, 1, 0, 4});
  EXPECT_NE(two.find("<title>ein langer Name für eine Klasse taken for b: 1 (25.0 %)</title>"), std::string::npos);
  EXPECT_EQ(two.find(">ein langer Name für eine Klasse</text>"), std::string::npos) << "no room at the edge";
  EXPECT_EQ(count_of(two, "<title>"), 3u) << "of what there is";
  const auto alike = texts_of(confusion_chart({"a long name of class one", "a long name of class two"}, {1, 0, 0, 1}));
  EXPECT_TRUE(alike.at(0).starts_with("0 a long")) << alike[0];
  labels.clear();
  std::vector<int64_t> counts(200 * 200);
  for (size_t i = 0; i < 200; ++i) {
    labels.push_back(std::to_string(i));
    counts[i * 201] = 1;
  }
  const std::string many = confusion_chart(labels, counts);
  EXPECT_LT(count_of(many, "<text"), 70u) << "letters would lie on each other";
  EXPECT_GT(count_of(many, "<text"), 20u);
}

TEST(Svg, RooflineDrawsWhatWasMeasuredThere) {
  const std::string s =
      roofline_chart({1e11, 1e10, {{"in", 1e9, 1e8, 1e-2}, {"copy", 0, 1e6, 1e-3}, {"slow", 10, 10, 1e-3}}});
  EXPECT_EQ(count_of(s, "<circle"), 1u);
  EXPECT_NE(s.find("2 outside: 16.7 % of the time"), std::string::npos) << s;
}

TEST(Report, SaysWhatIsMissing) {
  Report r;
  r.note = "stopped < early";
  r.parts.push_back({"Time per node", "", "", {}, {}, false, {}, {}, "no data"});
  const std::string html = report_html(r);
  EXPECT_NE(html.find("<h2>Time per node</h2><p class=missing>no data</p>"), std::string::npos);
  EXPECT_NE(html.find("stopped &lt; early"), std::string::npos);
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
