#include "base/schema.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lathe {
namespace {

struct Common {
  std::string name;
  template <class F>
  static void fields(F&& f) {
    f("name", &Common::name, "of the item");
  }
};

struct Pair : Common {
  int64_t width = 0, padding = -1;
  std::optional<double> decay;
  template <class F>
  static void fields(F&& f) {
    f("width", &Pair::width, allow::required(allow::range(1, 9)), "of the pair");
    f("padding", &Pair::padding, allow::or_word(allow::range(0, 1024), "same", -1), "at each side");
    f("decay", &Pair::decay, allow::range(0, 1), "if any");
    Common::fields(f);
  }
};

std::span<const TableType> item_types() {
  static const TableType types[] = {{"pair", "two", schema_of<Pair>}, {"common", "one", schema_of<Common>}};
  return types;
}

struct Everything {
  bool flag = true;
  int64_t count = 4;
  double rate = 0.5;
  std::string mode = "fast";
  Ints sizes{3, 4};
  Doubles means{0.5};
  ByteSize budget;
  Strings match{"a"};
  Tables items;
  template <class F>
  static void fields(F&& f) {
    f("flag", &Everything::flag, "on or off");
    f(
        "count", &Everything::count, allow::range(1, 1000000), "how many", +[](const Everything& e) { return e.flag; },
        "flag = true");
    f("rate", &Everything::rate, allow::below(0, 1), "how much");
    f("mode", &Everything::mode, allow::one_of({"fast", "slow"}), "how");
    f("sizes", &Everything::sizes, allow::list(allow::range(1, 10), 1, 3), "how large");
    f("means", &Everything::means, allow::list(allow::above(0, 1), 1, 3), "of what");
    f("budget", &Everything::budget, "in memory");
    f("match", &Everything::match, "names");
    f("items", &Everything::items, allow::tables(item_types, 2), "a list");
  }
};

std::string text_of(const ParamSet& p, std::string_view name) {
  const Field& f = *p.schema().find(name);
  return value_text(p.at(f), f.allowed);
}
std::string allowed_of(std::string_view name) {
  const ParamSet p{Everything{}};
  const Field& f = *p.schema().find(name);
  return allowed_text(p.at(f), f.allowed);
}
std::string wrong_in(const ParamSet& p, std::string_view name) {
  const Field& f = *p.schema().find(name);
  const auto bad = check_value(p.at(f), f.allowed);
  return !bad ? "" : bad->item ? bad->got + " at " + std::to_string(*bad->item) : bad->got;
}

TEST(Schema, DefaultsAreTheMembersInitialisers) {
  const ParamSet p(schema_of<Everything>());
  const char* texts[] = {"true", "4", "0.5", "\"fast\"", "[3, 4]", "[0.5]", "\"0\"", "\"a\"", "[]"};
  ASSERT_EQ(p.schema().fields.size(), std::size(texts));
  for (size_t i = 0; i < std::size(texts); ++i) {
    const Field& f = p.schema().fields[i];
    EXPECT_EQ(value_text(p.at(f), f.allowed), texts[i]) << f.name;
    EXPECT_FALSE(check_value(p.at(f), f.allowed)) << f.name;
  }
  EXPECT_EQ(p, ParamSet(Everything{}));
}

TEST(Schema, SetsByNameAreValues) {
  ParamSet p(schema_of<Everything>(),
             {{"count", 7}, {"rate", 0}, {"mode", "slow"}, {"sizes", Ints{1}}, {"flag", false}});
  EXPECT_EQ(p.as<Everything>().count, 7);
  EXPECT_EQ(p.as<Everything>().rate, 0);
  EXPECT_EQ(p.as<Everything>().mode, "slow");
  EXPECT_FALSE(p.as<Everything>().flag);
  ParamSet q = p;
  EXPECT_EQ(q, p);
  q.as<Everything>().count = 8;
  EXPECT_NE(q, p);
  EXPECT_EQ(p.as<Everything>().count, 7);
  q.reset(*q.schema().find("count"));
  EXPECT_EQ(text_of(q, "count"), "4");
  EXPECT_THROW(q.set("cont", 3), UserError);
  EXPECT_THROW(q.set("count", "many"), UserError);
  EXPECT_THROW(q.set("sizes", 3), UserError);
  EXPECT_THROW(q.as<Pair>(), InternalError);
  EXPECT_FALSE(q.is<Pair>());
  EXPECT_NE(ParamSet(Pair{}), ParamSet());
}

TEST(Schema, EffectDependsOnTheOtherFields) {
  const Field& count = *schema_of<Everything>().find("count");
  EXPECT_TRUE(ParamSet(Everything{}).is_used(count));
  EXPECT_FALSE(ParamSet(schema_of<Everything>(), {{"flag", false}}).is_used(count));
  EXPECT_EQ(count.needs, "flag = true");
}

TEST(Schema, SaysWhatIsAllowedAndWhatIsWrong) {
  EXPECT_EQ(allowed_of("count"), "an integer from 1 to 1000000");
  EXPECT_EQ(allowed_of("rate"), "a number from 0 to below 1");
  EXPECT_EQ(allowed_of("mode"), "one of \"fast\", \"slow\"");
  EXPECT_EQ(allowed_of("sizes"), "a list of 1 to 3 integers from 1 to 10");
  EXPECT_EQ(allowed_of("means"), "a list of 1 to 3 numbers above 0 to 1");
  EXPECT_EQ(allowed_of("flag"), "true or false");
  ParamSet p(schema_of<Everything>(), {{"count", 0}, {"rate", 1}, {"mode", "quick"}, {"sizes", Ints{3, 11}}});
  EXPECT_EQ(wrong_in(p, "count"), "0");
  EXPECT_EQ(wrong_in(p, "rate"), "1.0");
  EXPECT_EQ(wrong_in(p, "mode"), "\"quick\"");
  EXPECT_EQ(wrong_in(p, "sizes"), "11.0 at 1");
  EXPECT_EQ(wrong_in(p.set("sizes", Ints{}), "sizes"), "0 items");
}

TEST(Schema, TablesHaveSchemasOfTheirOwn) {
  Pair pair;
  pair.width = 3;
  Common common;
  common.name = "x \"y\"";
  ParamSet p(schema_of<Everything>(), {{"items", Tables{pair, common}}});
  EXPECT_EQ(text_of(p, "items"), "[{ type = \"pair\", width = 3 }, { type = \"common\", name = \"x \\\"y\\\"\" }]");
  EXPECT_EQ(wrong_in(p, "items"), "");
  p.as<Everything>().items[0].set("padding", 1024).set("decay", 0.5).set("name", "n");
  EXPECT_EQ(table_text(p.as<Everything>().items[0], ""), "{width = 3, padding = 1024, decay = 0.5, name = \"n\"}");
  p.as<Everything>().items[0].set("padding", 1025);
  EXPECT_EQ(wrong_in(p, "items"), "{ type = \"pair\", width = 3, padding = 1025, decay = 0.5, name = \"n\" } at 0");
  const Field& padding = *schema_of<Pair>().find("padding");
  ParamSet same{Pair{}};
  EXPECT_EQ(allowed_text(same.at(padding), padding.allowed), "\"same\" or an integer from 0 to 1024");
  EXPECT_EQ(value_text(same.at(padding), padding.allowed), "\"same\"");
  EXPECT_EQ(same.set("padding", 3).set("padding", "same").as<Pair>().padding, -1);
  EXPECT_THROW(same.set("padding", "sme"), UserError);
  ParamSet other{Common{}};
  other.set("name", "n");
  EXPECT_TRUE(copy_value(other, "name", same));
  EXPECT_EQ(same.as<Pair>().name, "n");
  EXPECT_FALSE(copy_value(other, "width", same));
  EXPECT_EQ(wrong_in(ParamSet(schema_of<Everything>(), {{"items", Tables{ParamSet()}}}), "items"), "{} at 0");
  EXPECT_EQ(wrong_in(ParamSet(schema_of<Everything>(), {{"items", Tables(3, ParamSet(pair))}}), "items"), "3 tables");
}

TEST(Schema, SizesAndChoicesInWords) {
  EXPECT_EQ(parse_size("1.5KiB"), ByteSize{1536});
  EXPECT_EQ(parse_size("2MB"), ByteSize{2000000});
  EXPECT_EQ(parse_size("x"), std::nullopt);
  EXPECT_EQ(size_text({1536}), "1536B");
  const std::string_view names[] = {"a", "b", "c"};
  EXPECT_EQ(choice_text("model.family", names), "model.family = \"a\", \"b\" or \"c\"");
  EXPECT_EQ(choice_text("k", std::span(names).first(1)), "k = \"a\"");
}

struct Width {
  int64_t width = 3;
  static void fields(auto&& f) { f("width", &Width::width, allow::range(1, 9), "of all"); }
};
struct Border {
  double size = 1;
  static void fields(auto&& f) { f("border", &Border::size, allow::at_least(0), "of it", is_wide, "width > 3"); }
  static bool is_wide(const ParamSets& s) { return s.get<Width>().width > 3; }
};

TEST(ParamSets, HoldsOneOfEachType) {
  ParamSets a, b;
  const Schema &width = schema_of<Width>(), &border = schema_of<Border>();
  const ParamSets& read = a;
  EXPECT_EQ(read.get<Width>().width, 3);
  EXPECT_FALSE(a.has<Width>());
  EXPECT_FALSE(a.is_used(border, border.fields[0]));
  EXPECT_EQ(value_text(read.at(width, width.fields[0]), {}), "3");
  b.set(Width{3});  // the default, as good as never set
  EXPECT_TRUE(b.has<Width>());
  EXPECT_EQ(a, b);
  a.set(Border{2}).get<Width>().width = 4;
  EXPECT_NE(a, b);
  EXPECT_NE(b, a);
  EXPECT_EQ(value_text(read.at(width, width.fields[0]), {}), "4");
  EXPECT_TRUE(a.is_used(border, border.fields[0]));
  b = a;
  b.get<Width>().width = 5;  // a copy of its own
  EXPECT_EQ(read.get<Width>().width, 4);
  EXPECT_EQ(read.get<Border>().size, 2);
  a.reset(border, border.fields[0]);
  EXPECT_EQ(read.get<Border>().size, 1);
}

}  // namespace
}  // namespace lathe
