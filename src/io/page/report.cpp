#include "io/page/report.h"

#include <fmt/format.h>

#include "io/page/png.h"

namespace lathe::io {
namespace {

// Series colours keep their contrast on both grounds; they can be distinguished with any kind of colour vision (Okabe,
// Ito).
constexpr const char* kStyle = R"(
:root{--ground:#fff;--ink:#1d2126;--soft:#5c6670;--grid:#e3e7eb;--card:#f6f8fa;
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#cc79a7;--c4:#b8860b;--c5:#56b4e9;--c6:#7a5195;--c7:#666}
@media(prefers-color-scheme:dark){:root{--ground:#15181c;--ink:#e6e9ec;--soft:#9aa5b1;--grid:#2c333a;--card:#1d2227;
--c0:#4fa8e0;--c1:#f0803c;--c2:#2bc79a;--c3:#e39bc4;--c4:#e0b040;--c5:#8fd0f7;--c6:#b08ad6;--c7:#aaa}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1180px;padding:24px 20px 60px;background:var(--ground);color:var(--ink);
font:15px/1.5 system-ui,sans-serif}
h1{font-size:26px;margin:0}h2{font-size:17px;margin:0 0 6px}p{margin:0 0 10px;color:var(--soft)}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:10px;margin:18px 0}
.facts div,section{background:var(--card);border-radius:8px;padding:12px 14px}
.facts b{display:block;font-size:20px;font-weight:600;overflow-wrap:anywhere}.facts span{color:var(--soft);font-size:13px}
main{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:14px;grid-auto-flow:dense}
section{min-width:0}section.all{grid-column:1/-1}section.alone svg{max-width:760px;margin:0 auto}
svg{width:100%;height:auto;display:block}svg text{fill:var(--soft);font-size:12px}
svg .count{fill:var(--ink)}.grid{stroke:var(--grid)}.mark{stroke:var(--ink);stroke-dasharray:3 3}
.line{fill:none;stroke-width:1.8;stroke-linejoin:round}.roof{stroke:var(--ink)}
.dot{fill:var(--c0);fill-opacity:.45;stroke:var(--c0)}.right{fill:var(--c2)}.wrong{fill:var(--c1)}
.legend{margin:4px 0 0;font-size:13px}.legend span{display:inline-block;max-width:100%;overflow-wrap:anywhere;margin-right:12px}
.legend i{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:5px}
.legend i[class*=' d']{width:28px;height:4px;border-radius:0;vertical-align:middle}
.ground{fill:var(--ground)}.note{border-left:4px solid var(--c1);padding-left:10px;color:var(--ink)}
.pictures{display:grid;grid-template-columns:repeat(auto-fill,minmax(92px,1fr));gap:10px}
.pictures.wide{grid-template-columns:repeat(auto-fill,minmax(min(100%,250px),1fr))}
.pictures.wide img{border:1px solid var(--grid)}
pre{margin:0;white-space:pre-wrap;overflow-wrap:anywhere;font:14px/1.5 ui-monospace,monospace}pre span{color:var(--soft)}
figure{margin:0;text-align:center;font-size:12px;overflow-wrap:anywhere}
figure img{width:100%;image-rendering:pixelated;border:2px solid var(--c2);border-radius:4px;display:block}
figure.no img{border-color:var(--c1)}figure.no figcaption{color:var(--c1)}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:13px;width:100%}
td,th{padding:3px 10px 3px 0;text-align:right;white-space:nowrap;border-bottom:1px solid var(--grid)}
td:last-child,th:last-child{padding-right:0}
td:first-child,th:first-child{text-align:left;white-space:normal;overflow-wrap:anywhere;min-width:180px}
td.long{white-space:normal;overflow-wrap:anywhere;min-width:180px}
th{color:var(--soft);font-weight:500;white-space:normal;vertical-align:bottom}
@media(max-width:560px){svg text{font-size:15px}svg.chart text{font-size:21px}body{padding:18px 12px 40px}
table{font-size:12px}td,th{padding-right:6px}td:first-child,th:first-child,td.long{min-width:96px}}
)";

constexpr size_t kLongCell = 28;  // letters: longer ones may take several lines

// Names and paths may break between their parts, numbers may not.
std::string breakable(std::string_view text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  std::string out;
  size_t from = 0;
  for (size_t i = 1; i + 1 < text.size(); ++i) {
    if (std::string_view("._/:-").find(text[i]) == std::string_view::npos || !is_letter(text[i + 1])) continue;
    out += escape_html(text.substr(from, i + 1 - from)) + "<wbr>";
    from = i + 1;
  }
  return out + escape_html(text.substr(from));
}

std::string table(const ReportTable& t) {
  std::string s = "<div class=scroll><table><tr>";
  for (const std::string& h : t.header) s += "<th>" + breakable(h) + "</th>";
  s += "</tr>\n";
  for (const auto& row : t.rows) {
    s += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      const bool is_long = row[i].size() > kLongCell;
      s += (is_long ? "<td class=long>" : "<td>") + (is_long || i == 0 ? breakable(row[i]) : escape_html(row[i])) +
           "</td>";
    }
    s += "</tr>\n";
  }
  return s + "</table></div>";
}

bool is_empty(const ReportPart& p) {
  return p.svg.empty() && p.pictures.empty() && p.table.rows.empty() && p.written.empty() && p.missing.empty();
}

bool takes_the_row(const ReportPart& p) { return !p.pictures.empty() || p.table.header.size() > 3; }

// `alone`: of those that stand in two columns it is the last and has no neighbour.
std::string part(const ReportPart& p, bool alone) {
  std::string s = fmt::format("<section{}><h2>{}</h2>",
                              alone              ? " class='all alone'"
                              : takes_the_row(p) ? " class=all"
                                                 : "",
                              escape_html(p.title));
  if (!p.text.empty()) s += "<p>" + escape_html(p.text) + "</p>";
  if (!p.missing.empty()) s += "<p class=missing>" + breakable(p.missing) + "</p>";
  s += p.svg;
  if (!p.pictures.empty()) {
    s += p.wide ? "<div class='pictures wide'>" : "<div class=pictures>";
    for (const ReportPicture& f : p.pictures)
      s += fmt::format("<figure{}><img alt='' src='data:image/png;base64,{}'><figcaption>{}</figcaption></figure>",
                       f.right ? "" : " class=no", base64(f.png), escape_html(f.caption));
    s += "</div>";
  }
  if (!p.table.rows.empty()) s += table(p.table);
  if (!p.written.empty())
    s += fmt::format("<pre><span>{}</span>{}</pre>", escape_html(p.prompt), escape_html(p.written));
  return s + "</section>\n";
}

}  // namespace

std::string report_html(const Report& r) {
  std::string series;
  for (size_t i = 0; i < kChartColours; ++i)
    series += fmt::format(
        ".s{0}{{stroke:var(--c{0})}}.f{0}{{fill:var(--c{0})}}svg "
        ".t{0}{{fill:var(--c{0})}}.b{0}{{background:var(--c{0})}}",
        i);
  std::string s = fmt::format(
      "<!doctype html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport "
      "content='width=device-width,initial-scale=1'><meta name=color-scheme content='light dark'>"
      "<title>{}</title><style>{}{}</style></head>\n<body><h1>{}</h1><p>{}</p>\n{}<div class=facts>",
      escape_html(r.title), kStyle, series + chart_style(), escape_html(r.title), escape_html(r.subtitle),
      r.note.empty() ? "" : "<p class=note>" + escape_html(r.note) + "</p>\n");
  for (const auto& [name, value] : r.facts)
    s += fmt::format("<div><b>{}</b><span>{}</span></div>", escape_html(value), escape_html(name));
  s += "</div>\n<main>\n";
  const ReportPart* last = nullptr;  // in the left column, its neighbour missing
  for (const ReportPart& p : r.parts)
    if (!is_empty(p) && !takes_the_row(p)) last = last ? nullptr : &p;
  for (const ReportPart& p : r.parts)
    if (!is_empty(p)) s += part(p, &p == last);
  return s + "</main></body></html>\n";
}

}  // namespace lathe::io
