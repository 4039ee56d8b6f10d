// libFuzzer harness: any bytes are rows of equally many cells, or a bad-data error; the whole source, from a file, too.
// clang++ -std=c++20 -fsanitize=fuzzer,address,undefined -Isrc ...
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/formats/csv.h"
#include "data/formats/csv_rows.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace lathe;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  try {
    size_t columns = 0;
    data::for_each_row(text, "fuzz.csv", [&](int64_t line, std::span<const std::string_view> cells) {
      if (line < 1 || (columns && cells.size() != columns)) std::abort();
      columns = cells.size();
    });
  } catch (const UserError& error) {
    if (error.exit_code() != Exit::bad_data) std::abort();
  }
  static const std::string path = "/tmp/lathe_csv_fuzz." + std::to_string(::getpid());
  std::FILE* f = std::fopen(path.c_str(), "wb");
  if (!f || std::fwrite(bytes, 1, size, f) != size) std::abort();
  std::fclose(f);
  for (const bool values : {false, true}) {
    try {
      const auto source = data::load_csv({.path = path, .values = values}, data::Split::train);
      std::vector<std::vector<std::byte>> fields;
      for (const auto& field : source->fields()) fields.emplace_back(static_cast<size_t>(field.type.bytes()));
      const std::vector<std::span<std::byte>> spans(fields.begin(), fields.end());
      for (int64_t i = 0; i < source->size(); ++i) source->read(i, spans);
      // The same file as rows to predict, and as rows for a net that was trained on others.
      const auto rows_of = [&](const std::string& trained_on) {
        const data::CsvConfig c{.path = trained_on, .values = values};
        return static_cast<int64_t>(data::read_csv_samples(c, data::learn_csv(c), path).names.size());
      };
      const int64_t rows = rows_of(path);
      if (rows < source->size()) std::abort();
      static const std::string other = [] {
        std::string name = path + ".other";
        std::FILE* o = std::fopen(name.c_str(), "wb");
        if (!o || std::fputs("a,b,c\n1,x,2\n3,z,4\n", o) < 0) std::abort();
        std::fclose(o);
        return name;
      }();
      rows_of(other);
    } catch (const UserError& error) {
      if (error.exit_code() != Exit::bad_data && error.exit_code() != Exit::bad_recipe) std::abort();
    }
  }
  return 0;
}
