// Tile sizes measured by `lathe bench tune-device`, one small text file per device beside the compiled programs.
#pragma once

#include <optional>
#include <string>

#include "backend/kernels/product_calls.h"

namespace lathe {

std::string tiles_to_text(const ProductTiles&);
std::optional<ProductTiles> tiles_from_text(const std::string&);  // nullopt for anything but a whole file

class TileStore {
 public:
  // `identity`: of device and driver; an empty folder keeps nothing.
  TileStore(std::string folder, const std::string& identity, LaunchStyle);
  std::optional<ProductTiles> load() const;
  bool save(const ProductTiles&) const;  // atomic; false where the folder cannot be written
  bool exists() const;
  const std::string& path() const { return path_; }

 private:
  std::string folder_, path_;
};

}  // namespace lathe
