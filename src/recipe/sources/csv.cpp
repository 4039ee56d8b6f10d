// A table: rows of a csv file, one column of which is to be predicted.
#include "data/formats/csv.h"

#include "recipe/sources/preparation.h"
#include "recipe/sources/source.h"

namespace lathe {
namespace {

struct Csv {
  static constexpr SourceFacts facts{
      .name = "csv", .targets = " class value ", .path = "a csv file", .images = false, .table = true, .numbers = true};

  static data::CsvConfig config(const DataRecipe& d) {
    return {.path = d.path,
            .test_path = d.test_path,
            .header = d.header,
            .label = d.label,
            .ignore = d.ignore,
            .values = d.target == "value",
            .classes = d.classes,
            .row = d.row,
            .standardize = d.standardize};
  }

  static data::SourceInfo describe(const Recipe& r, data::Split split) {
    return data::describe_csv(config(r.data), split);
  }

  static std::shared_ptr<const data::Source> open(const Recipe& r, data::Split split, Preparation& learned) {
    learned.table.emplace();
    auto source = data::load_csv(config(r.data), split, &*learned.table);
    learned.names = learned.table->labels;
    return source;
  }

  static void learn(const Recipe& r, Preparation& learned) {
    learned.table = data::learn_csv(config(r.data));
    learned.names = learned.table->labels;
  }

  static std::optional<data::Samples> read_file(const Recipe& r, const Preparation& known, const std::string& path) {
    if (!known.table) return std::nullopt;
    return data::read_csv_samples(config(r.data), *known.table, path);
  }
};

}  // namespace

extern const SourceRule csv_source;
constinit const SourceRule csv_source = make_source<Csv>();

}  // namespace lathe
