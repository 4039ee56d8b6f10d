#include "data/formats/csv.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "data/formats/csv_rows.h"

namespace lathe::data {
namespace {

class Csv : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("lathe_csv_test_" + std::to_string(::getpid()) + "_" +
                                                        testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& text, const std::string& name = "a.csv") {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).native();
  }
  std::string error_of(const CsvConfig& c, Split split = Split::train) {
    try {
      load_csv(c, split);
    } catch (const Misfit& e) {
      return e.keys().front() + ": " + e.what();
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  }

  std::filesystem::path folder_;
};

std::vector<float> features(const Source& s, int64_t i, float* target = nullptr, int32_t* label = nullptr) {
  std::vector<float> x(static_cast<size_t>(s.fields()[0].type.numel()));
  std::byte y[4];
  const std::span<std::byte> spans[] = {std::as_writable_bytes(std::span(x)), std::span(y)};
  s.read(i, spans);
  if (target) std::memcpy(target, y, 4);
  if (label) std::memcpy(label, y, 4);
  return x;
}

std::vector<std::vector<std::string>> rows(std::string_view text) {
  std::vector<std::vector<std::string>> out;
  for_each_row(text, "t.csv",
               [&](int64_t, std::span<const std::string_view> cells) { out.emplace_back(cells.begin(), cells.end()); });
  return out;
}

TEST_F(Csv, CellsAreTakenApart) {
  using Rows = std::vector<std::vector<std::string>>;
  EXPECT_EQ(rows("a,b\r\n\n1, 2 \n"), (Rows{{"a", "b"}, {"1", "2"}}));
  EXPECT_EQ(rows("\"a,\"\"b\"\"\",\"line\nbreak\"\n1,2"), (Rows{{"a,\"b\"", "line\nbreak"}, {"1", "2"}}));
  EXPECT_EQ(rows("1\t2\n3\t"), (Rows{{"1", "2"}, {"3", ""}}));
  EXPECT_EQ(rows("1;2;3\n")[0].size(), 3u);
  EXPECT_TRUE(rows("").empty());
  EXPECT_THROW(rows("1,2\n1\n"), UserError);
  EXPECT_THROW(rows("\"a\n"), UserError);
  EXPECT_THROW(rows("\"a\"b,c\n"), UserError);
}

TEST_F(Csv, NumbersAndWordsBecomeStandardFeatures) {
  std::string text = "size,kind,price\n";
  for (int i = 0; i < 10; ++i)
    text += std::to_string(i) + (i % 2 ? ",odd," : ",even,") + std::to_string(100 + 10 * i) + "\n";
  const CsvConfig c{.path = file(text), .label = "price", .values = true};
  const auto train = load_csv(c, Split::train), test = load_csv(c, Split::test);
  ASSERT_EQ(train->size(), 8);
  ASSERT_EQ(test->size(), 2);  // rows 4 and 9
  EXPECT_EQ(train->fields()[0].type, (TensorType{DType::f32, {1, 3, 1}}));
  EXPECT_EQ(train->fields()[1].type, (TensorType{DType::f32, {1}}));
  EXPECT_EQ(train->classes(), 1);
  // Of the training rows 0 1 2 3 5 6 7 8: mean 4, variance 7.5.
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < 8; ++i) {
    const auto x = features(*train, i);
    sum += x[0];
    squares += x[0] * x[0];
    EXPECT_EQ(x[1] + x[2], 1);
  }
  EXPECT_NEAR(sum, 0, 1e-5);
  EXPECT_NEAR(squares, 8, 1e-4);
  EXPECT_NEAR(train->label_units().mean, 140, 1e-9);
  EXPECT_NEAR(train->label_units().scale, 10 * std::sqrt(7.5), 1e-9);
  float target = 0;
  const auto last = features(*test, 1, &target);
  EXPECT_NEAR(last[0], 5 / std::sqrt(7.5), 1e-6);
  EXPECT_EQ(last[1], 0);  // "even" comes first
  EXPECT_EQ(last[2], 1);
  EXPECT_NEAR(target * train->label_units().scale + train->label_units().mean, 190, 1e-4);
  const SourceInfo info = describe_csv(c, Split::test);
  EXPECT_EQ(info.size, 2);
  EXPECT_EQ(info.resident_bytes, test->resident_bytes());
  EXPECT_EQ(info.label, test->fields()[1].type);
}

TEST_F(Csv, LabelsAreNumberedByTheirSizeAndTestRowsHaveTheirFile) {
  const CsvConfig c{.path = file("10\t1\t2\t3\t4\n-1\t5\t6\t7\t8\n9\t1\t1\t1\t1\n", "a.tsv"),
                    .test_path = file("9\t4\t3\t2\t1\n", "b.tsv"),
                    .label = "0",
                    .classes = 3,
                    .row = 2,
                    .standardize = false};
  const auto train = load_csv(c, Split::train), test = load_csv(c, Split::test);
  EXPECT_EQ(train->size(), 3);
  EXPECT_EQ(test->size(), 1);
  EXPECT_EQ(train->fields()[0].type.shape, (Shape{2, 2, 1}));
  int32_t label = 0;
  EXPECT_EQ(features(*train, 0, nullptr, &label), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(label, 2);
  features(*train, 1, nullptr, &label);
  EXPECT_EQ(label, 0);
  EXPECT_EQ(features(*test, 0, nullptr, &label), (std::vector<float>{4, 3, 2, 1}));
  EXPECT_EQ(label, 1);
}

TEST_F(Csv, ColumnsOfAnyScaleAreStandardised) {
  std::string text = "far,small,same,y\n";
  constexpr int kRows = 50;
  for (int i = 0; i < kRows; ++i) text += fmt::format("{},{}e-7,0.1,{}e-9\n", 1000000000 + 2 * i, i % 7, 100 + i % 5);
  const CsvConfig c{.path = file(text), .test_path = file("far,small,same,y\n1e38,1,0,0\n", "t.csv"), .values = true};
  const auto train = load_csv(c, Split::train);
  ASSERT_EQ(train->size(), kRows);
  double sum[4] = {}, squares[4] = {};
  for (int64_t i = 0; i < kRows; ++i) {
    float target = 0;
    auto x = features(*train, i, &target);
    ASSERT_EQ(x.size(), 3u);
    EXPECT_EQ(x[2], 0) << "a constant is not divided by nothing";
    x.push_back(target);
    for (size_t k = 0; k < 4; ++k) {
      sum[k] += x[k];
      squares[k] += double{x[k]} * x[k];
    }
  }
  for (const size_t k : {0, 1, 3}) {
    EXPECT_NEAR(sum[k] / kRows, 0, 1e-6) << k;
    EXPECT_NEAR(squares[k] / kRows, 1, 1e-5) << k;
  }
  EXPECT_NEAR(train->label_units().mean, 102e-9, 1e-15);
  EXPECT_NEAR(train->label_units().scale, std::sqrt(2.0) * 1e-9, 1e-15);
  EXPECT_EQ(learn_csv(c).columns[2].scale, 1);
  EXPECT_EQ(error_of(c, Split::test), "");
  file("far,small,same,y\n1,1e38,0,0\n", "t.csv");
  EXPECT_NE(error_of(c, Split::test).find("t.csv:2: column small: expected a number near those of training"),
            std::string::npos);
}

TEST_F(Csv, TestColumnsGoByTheirNames) {
  const std::string path = file("a,kind,id,b,y\n1,odd,p,10,5\n2,even,q,20,6\n3,odd,r,30,7\n");
  const auto config = [&](const std::string& test, const char* header = "auto") {
    return CsvConfig{.path = path,
                     .test_path = file(test, "t.csv"),
                     .header = header,
                     .ignore = "id",
                     .values = true,
                     .standardize = false};
  };
  for (const char* test : {"a,kind,id,b,y\n2,even,s,30,6\n", "y;b;kind;id;a\n6;30;even;s;2\n",
                           "kind,y,a,b\neven,6,2,30\n", "2,even,s,30,6\n"}) {
    const auto source = load_csv(config(test), Split::test);
    ASSERT_EQ(source->size(), 1) << test;
    float target = 0;
    EXPECT_EQ(features(*source, 0, &target), (std::vector<float>{2, 1, 0, 30})) << test;
    EXPECT_EQ(target, 0) << test;
  }
  const auto refused = [&](const CsvConfig& c, const std::string& part) {
    const std::string text = error_of(c, Split::test);
    EXPECT_NE(text.find(part), std::string::npos) << text << "\nwanted: " << part;
  };
  refused(config("kind,y,a\neven,6,2\n"), "t.csv:1: expected a column b as in " + path);
  refused(config("a,kind,id,b\n2,even,s,30\n"), "t.csv:1: expected a column y as in " + path);
  refused(config("a,kind,id,c,y\n2,even,s,30,6\n"), "t.csv:1: column \"c\" is none of " + path);
  refused(config("a,kind,id,b,a\n2,even,s,30,6\n"), "t.csv:1: column \"a\" is there twice");
  refused(config("2,even,s,30\n"), "t.csv:1: expected 5 columns as in " + path + ", got 4");
  refused(config("2,even,s,30,6\n", "yes"), "t.csv:1: column \"2\" is none of");
  refused(config("a,kind,id,b,y\n"), "no test rows");
}

TEST_F(Csv, ErrorsNameFileLineAndColumn) {
  const auto has = [&](const CsvConfig& c, const std::string& part, Split split = Split::train) {
    const std::string text = error_of(c, split);
    EXPECT_NE(text.find(part), std::string::npos) << text << "\nwanted: " << part;
  };
  has({.path = file("a,b\n1,2\n3,x\n"), .label = "a"}, "a.csv:3: column b: expected a number as in line 2, got \"x\"");
  has({.path = file("a,b\n1,2\n3,\n"), .label = "a"}, "a.csv:3: column b: expected a number as in line 2, got nothing");
  has({.path = file("a,b\n1,2\n3,1e300\n"), .label = "a"}, "a.csv:3: column b: expected a number that f32 holds");
  has({.path = file("a,b,a\n1,2,3\n3,4,5\n"), .label = "b"},
      "a.csv:1: expected names that differ, got \"a\" for columns 1 and 3");
  has({.path = file("a,b\n1,2\n3,nan\n"), .label = "a"}, "got \"nan\"");
  has({.path = file("a,b\n1,2\n3,1e999\n"), .label = "a"}, "got \"1e999\"");
  has({.path = file("a,b\n1,2\n3\n")}, "a.csv:3: expected 2 cells as in the first row, got 1");
  has({.path = file("a,b\n1,2\n"), .label = "c"}, "data.label: expected one of the 2 columns of");
  has({.path = file("a,b\n1,2\n"), .ignore = "c"}, "data.ignore: expected one of");
  has({.path = file("a,b\n1,2\n"), .ignore = "a"}, "no column is left");
  has({.path = file("a,b\n1,2\n3,4\n"), .classes = 5}, "data.classes: expected 2, the number of different labels");
  has({.path = file("a,b\n1,2\n3,4\n"), .row = 2}, "data.row: expected a divisor of the 1 features");
  has({.path = file("a,b\n")}, "no rows");
  has({.path = file("a,b\n1,2\n")}, "no test rows", Split::test);
  has({.path = file("1,2\n3,4\n"), .test_path = file("1,7\n", "t.csv")}, "t.csv:1: column 1: expected a label that",
      Split::test);
  has({.path = file("1,2\n3,4\n"), .test_path = file("1,2,3\n", "t.csv")}, "t.csv:1: expected 2 columns as in",
      Split::test);
  has({.path = file("t,y\nNA,1\n2,2\n3.5,1\n")},
      "a.csv:2: column t: expected a number as in other rows, or words in most of them, got \"NA\"; data.ignore");
  has({.path = file("t,y\n1e999,1\n2,2\n")}, "a.csv:2: column t: expected a number as in other rows");
  has({.path = file("t;y\n-24,5;1\n-20,1;2\n3;1\n")}, "got \"-24,5\"; write decimals with a point");
  std::string late = "t,y\nNA,1\n";
  for (int i = 0; i < 100; ++i) late += std::to_string(i) + ",1\n";
  has({.path = file(late)}, "a.csv:2: column t: expected a number as in other rows");
  has({.path = file(std::string("PK\3\4\0\0,1\n", 9))}, "a.csv: expected a table (csv) as UTF-8 text");
  EXPECT_EQ(error_of({.path = file("t,y\nNA,1\n2,2\nlow,1\nhigh,1\n")}), "") << "words, most of them";
  EXPECT_EQ(error_of({.path = file("t,u,y\nNA,1,1\n2,2,2\n3,3,1\n"), .ignore = "t"}), "");
  std::string many = "word,y\n";
  for (int i = 0; i < 100; ++i) many += "w" + std::to_string(i) + ",1\n";
  has({.path = file(many)}, "column word: expected numbers, or at most 64 different words");
  has({.path = (folder_ / "none.csv").native()}, "`lathe fetch`");
}

// size, kind, id (ignored), price (to predict): ten rows, of which the fifth and the tenth are test rows.
std::string price_table() {
  std::string text = "size,kind,id,price\n";
  for (int i = 0; i < 10; ++i)
    text += std::to_string(i) + (i % 2 ? ",odd,x," : ",even,y,") + std::to_string(100 + 10 * i) + "\n";
  return text;
}

TEST_F(Csv, NewRowsAreReadAsTheTestRows) {
  const CsvConfig c{.path = file(price_table()), .ignore = "id", .values = true};
  const auto test = load_csv(c, Split::test);
  const std::vector<float> truth = features(*test, 0);  // size 4, even
  const auto expect_row = [&](const std::string& text) {
    const Samples s = read_csv_samples(c, learn_csv(c), file(text, "new.csv"));
    ASSERT_EQ(s.names.size(), 1u) << text;
    EXPECT_EQ(s.type, test->fields()[0].type);
    ASSERT_EQ(s.bytes.size(), truth.size() * sizeof(float));
    EXPECT_EQ(std::memcmp(s.bytes.data(), truth.data(), s.bytes.size()), 0) << text;
  };
  expect_row("size,kind,id,price\n4,even,q,140\n");
  expect_row("size,kind,id\n4,even,q\n");        // without the column to predict
  expect_row("kind;size\neven;4\n");             // without the ignored one, in another order
  expect_row("price\tkind\tsize\n\teven\t4\n");  // nothing is asked of what is not read
  expect_row("4,even,q,140\n");                  // without the header
  expect_row(
      "\xef\xbb\xbf"
      "4,\"even\",q\r\n");  // and without the column to predict
  const Samples many = read_csv_samples(c, learn_csv(c), file("kind,size\neven,1\n\nodd,2\n", "new.csv"));
  EXPECT_EQ(many.names,
            (std::vector<std::string>{(folder_ / "new.csv").native() + ":2", (folder_ / "new.csv").native() + ":4"}));
}

TEST_F(Csv, NewRowsThatDoNotFitAreRefused) {
  const CsvConfig c{.path = file(price_table()), .ignore = "id", .values = true};
  const auto expect = [&](const std::string& text, const std::string& part) {
    try {
      read_csv_samples(c, learn_csv(c), file(text, "new.csv"));
      ADD_FAILURE() << text;
    } catch (const UserError& e) {
      EXPECT_EQ(e.exit_code(), Exit::bad_data);
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what() << " has no " << part;
    }
  };
  expect("", "no rows");
  expect("size,kind,id\n", "no rows");
  expect("\x89PNG\r\n\x1a\n", "new.csv: expected a table (csv) as UTF-8 text, got a file that is not text");
  expect(std::string("PK\3\4\0\0", 6), "new.csv: expected a table (csv)");
  expect("size,id,price\n1,2,3\n", "new.csv:1: expected a column kind as in");
  expect("size,kind,colour\n1,odd,red\n", "new.csv:1: column \"colour\" is none of");
  expect("size,kind,size\n1,odd,2\n", "column \"size\" is there twice");
  expect("1,odd\n", "new.csv:1: expected 4 columns as in");
  expect("size,kind\n1,odd\n2\n", "new.csv:3: expected 2 cells");
  expect("size,kind\nlarge,odd\n", "new.csv:2: column size: expected a number as in line 2, got \"large\"");
  expect("size,kind\n1e999,odd\n", "new.csv:2: column size: expected a number");
  expect("size,kind\n\"1,odd\n", "a quote is not closed");
  EXPECT_THROW(read_csv_samples(c, learn_csv(c), (folder_ / "nothing.csv").native()), UserError);
}

TEST_F(Csv, LabelsAreInTheOrderOfTheClasses) {
  const CsvConfig c{.path = file("a,kind\n1,pear\n2,apple\n3,10\n4,9\n5,pear\n")};
  EXPECT_EQ(learn_csv(c).labels, (std::vector<std::string>{"9", "10", "apple", "pear"}));
}

// Every fifth row is a test row: labels in a cycle of five leave one of them to the test rows alone.
TEST_F(Csv, AClassOfTestRowsAloneIsNamed) {
  std::string text = "a,label\n", rows;
  for (int i = 0; i < 200; ++i) rows += std::to_string(i) + "," + "pqrst"[i % 5] + "\n";
  const std::string path = file(text + rows, "cyc.csv");
  for (const int64_t classes : {0, 4, 5})
    for (const Split split : {Split::train, Split::test}) {
      const std::string error = error_of({.path = path, .classes = classes}, split);
      EXPECT_NE(error.find(path + ":6: column label: expected a label that the training rows have, got \"t\"; every "
                                  "fifth row is a test row: shuffle the rows, or set data.test_path"),
                error.npos)
          << error;
    }
  const CsvConfig apart{.path = path, .test_path = file(text + "1,t\n", "t.csv"), .classes = 5};
  EXPECT_EQ(load_csv(apart, Split::test)->classes(), 5);
}

}  // namespace
}  // namespace lathe::data
