#include "backend/opencl/tile_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "backend/kernels/binary_cache.h"

namespace lathe {
namespace {

struct Field {
  const char* name;
  int ProductTiles::*member;
};
constexpr std::array<Field, 11> kFields{{{"vector_bytes", &ProductTiles::vector_bytes},
                                         {"micro_rows", &ProductTiles::micro_rows},
                                         {"depth", &ProductTiles::depth},
                                         {"rows_per", &ProductTiles::rows_per},
                                         {"tile_rows", &ProductTiles::tile_rows},
                                         {"tile_cols", &ProductTiles::tile_cols},
                                         {"item_rows", &ProductTiles::item_rows},
                                         {"item_cols", &ProductTiles::item_cols},
                                         {"wide_depth", &ProductTiles::wide_depth},
                                         {"attention_rows", &ProductTiles::attention_rows},
                                         {"loop_items", &ProductTiles::loop_items}}};

constexpr LaunchStyle kStyles[] = {LaunchStyle::narrow, LaunchStyle::wide, LaunchStyle::small};
const char* name_of(LaunchStyle s) {
  return s == LaunchStyle::narrow ? "narrow" : s == LaunchStyle::wide ? "wide" : "small";
}

}  // namespace

std::string tiles_to_text(const ProductTiles& t) {
  std::string text = fmt::format("lathe-tiles-2 {}\n", name_of(t.style));
  for (const Field& f : kFields) text += fmt::format("{} {}\n", f.name, t.*f.member);
  return text + "end\n";
}

std::optional<ProductTiles> tiles_from_text(const std::string& text) {
  std::istringstream in(text);
  std::string word, style;
  if (!(in >> word >> style) || word != "lathe-tiles-2") return std::nullopt;
  const auto known = std::ranges::find(kStyles, style, name_of);
  if (known == std::end(kStyles)) return std::nullopt;
  ProductTiles t;
  t.style = *known;
  for (const Field& f : kFields)
    if (!(in >> word >> t.*f.member) || word != f.name) return std::nullopt;
  if (!(in >> word) || word != "end") return std::nullopt;
  return t;
}

TileStore::TileStore(std::string folder, const std::string& identity, LaunchStyle style)
    : folder_(std::move(folder)),
      path_(folder_.empty() ? "" : fmt::format("{}/{}.{}.tiles", folder_, cache_key(identity), name_of(style))) {}

std::optional<ProductTiles> TileStore::load() const {
  if (path_.empty()) return std::nullopt;
  std::ifstream file(path_);
  std::stringstream text;
  text << file.rdbuf();
  return tiles_from_text(text.str());
}

bool TileStore::exists() const {
  std::error_code ignored;
  return !path_.empty() && std::filesystem::exists(path_, ignored);
}

bool TileStore::save(const ProductTiles& t) const {
  return !path_.empty() && write_cache_file(path_, {tiles_to_text(t)});
}

}  // namespace lathe
