#include "data/fetch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

namespace lathe::data {

extern const char* const fetch_data;  // tools/fetch-data, embedded

const char* fetch_script() { return fetch_data; }

bool can_fetch(std::string_view name) {
  const bool word =
      !name.empty() && std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) || c == '_'; });
  return word && std::string_view(fetch_data).find(fmt::format("\ndef {}(folder):", name)) != std::string_view::npos;
}

std::string fetch_hint(const std::string& path) {
  std::filesystem::path folder;
  for (const std::filesystem::path& part : std::filesystem::path(path).lexically_normal()) {
    folder /= part;
    if (!can_fetch(part.native())) continue;
    const bool usual = folder == std::filesystem::path("data") / part;
    return fmt::format("`lathe fetch {}{}` gets it", part.native(), usual ? "" : " " + folder.native());
  }
  return "set data.path; `lathe fetch` lists the data sets that it can get";
}

}  // namespace lathe::data
