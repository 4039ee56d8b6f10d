// A table: rows of a csv file, one column of which is to be predicted.
#include "data/formats/csv.h"

#include "recipe/sources/fields.h"
#include "recipe/sources/preparation.h"
#include "recipe/sources/source.h"

namespace lathe {
namespace {

struct Csv {
  static constexpr SourceFacts facts{.name = "csv",
                                     .targets = {data::LabelKind::class_index, data::LabelKind::value},
                                     .path = "a csv file",
                                     .images = false,
                                     .numbers = true,
                                     .table = true};

  struct Params : data::CsvConfig {
    static void fields(auto&& f) {
      f("test_path", &Params::test_path, short_text("a path of at most 4096 bytes"),
        "file of the test rows; empty: every fifth row of data.path is one")
          .listed_after("data.path")
          .is_stable()
          .keeps_numbers();
      f("label", &Params::label, short_text("a name or number of at most 4096 bytes"),
        "column to predict, by its name or its number from 0; empty: the last")
          .listed_after("data.target")
          .is_fixed();
      f("ignore", &Params::ignore, short_text("names or numbers, at most 4096 bytes"),
        "columns to leave out, by name or number, with commas between them")
          .is_fixed();
      f("header", &Params::header, allow::one_of({"auto", "yes", "no"}),
        "the first line has the names of the columns; auto: when it has no number");
      number_fields<Params>(f);
    }
  };

  // What all sources have is added to the settings.
  static data::CsvConfig config(const Recipe& r) {
    data::CsvConfig c = r.data.source.params.as<Params>();
    c.path = r.data.path;
    c.values = label_kind_of(r) == data::LabelKind::value;
    c.classes = r.data.classes;
    return c;
  }

  static data::SourceInfo describe(const Recipe& r, data::Split split) { return data::describe_csv(config(r), split); }

  static std::shared_ptr<const data::Source> open(const Recipe& r, data::Split split, Preparation& learned) {
    learned.table.emplace();
    auto source = data::load_csv(config(r), split, &*learned.table);
    learned.names = learned.table->labels;
    return source;
  }

  static void learn(const Recipe& r, Preparation& learned) {
    learned.table = data::learn_csv(config(r));
    learned.names = learned.table->labels;
  }

  static std::optional<data::Samples> read_file(const Recipe& r, const Preparation& known, const std::string& path) {
    if (!known.table) return std::nullopt;
    return data::read_csv_samples(config(r), *known.table, path);
  }
};

}  // namespace

extern const SourceRule csv_source;
constinit const SourceRule csv_source = make_source<Csv>();

}  // namespace lathe
