// report.html: one self-contained page about a run. No scripts, nothing from a network: charts are SVG, pictures are
// PNG inside the page; light or dark and wide or narrow as the reader's screen is.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "io/page/svg.h"
#include "io/page/table.h"

namespace lathe::io {

struct ReportPicture {
  std::string png;
  std::string caption;
  bool right = true;  // a wrong prediction is marked
};

// A part of the page: a heading, and what is there of the rest, in this order.
struct ReportPart {
  std::string title;
  std::string text;  // one paragraph
  std::string svg;   // of io/page/svg.h
  std::vector<ReportPicture> pictures;
  ReportTable table;
  bool wide = false;  // pictures are several beside each other
  // A text that was written after another one; bytes that are no UTF-8 must have been replaced.
  std::string prompt = {}, written = {};
  std::string missing = {};  // why there is nothing to show: a sentence that stands for the part
};

struct Report {
  std::string title, subtitle;
  std::string note = {};                                   // a paragraph below: what a reader must know of all of it
  std::vector<std::pair<std::string, std::string>> facts;  // shown large, at the top
  std::vector<ReportPart> parts;                           // parts without content are left out
};

std::string report_html(const Report&);

}  // namespace lathe::io
