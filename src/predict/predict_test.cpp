// A run directory is enough to predict: the data it was trained on may be gone.
#include "predict/predict.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/warning.h"
#include "io/page/png.h"
#include "loop/trainer.h"
#include "predict/predictor.h"
#include "predict/text_writer.h"
#include "rundir/run_data.h"

namespace lathe {
namespace {

namespace stdfs = std::filesystem;

std::string npy_file(const std::string& shape, const std::vector<float>& v) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }\n";
  std::string out = std::string("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(header.size());
  out += '\0';
  out += header;
  out.append(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(float));
  return out;
}

class PredictWithoutData : public testing::Test {
 protected:
  PredictWithoutData() {
    char name[] = "/tmp/lathe-predict-XXXXXX";
    dir_ = mkdtemp(name);
    run_ = dir_ + "/run";
    stdfs::create_directory(dir_ + "/data");
  }
  ~PredictWithoutData() override { stdfs::remove_all(dir_); }

  std::string write(const std::string& name, const std::string& bytes) const {
    stdfs::create_directories(stdfs::path(dir_ + "/" + name).parent_path());
    std::ofstream(dir_ + "/" + name, std::ios::binary) << bytes;
    return dir_ + "/" + name;
  }

  void train_run(const std::string& data, const std::string& model = "family = \"mlp\"\nhidden = [8]",
                 const std::string& steps = "steps = 3") const {
    const Recipe r = parse_recipe("[data]\npath = \"" + dir_ + "/data" + data + "\n[model]\n" + model + "\n[train]\n" +
                                      steps + "\nbatch_size = 4\n[device]\nthreads = 1\n",
                                  "predict.toml");
    TrainOptions o;
    o.out = run_;
    train(r, o);
  }

  std::vector<Prediction> predictions(const std::vector<std::string>& inputs, const Sets& sets = {}) const {
    return predict(run_, inputs, sets);
  }

  static void expect_equal(const std::vector<Prediction>& a, const std::vector<Prediction>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].input, b[i].input);
      EXPECT_EQ(a[i].label, b[i].label);
      EXPECT_EQ(a[i].name, b[i].name);
      EXPECT_EQ(a[i].probabilities, b[i].probabilities);
      EXPECT_EQ(a[i].values, b[i].values);
      EXPECT_EQ(a[i].text, b[i].text);
    }
  }

  // As read from the data, as data.json has it, and without the data: bit by bit the same.
  void expect_same_without_data(const std::vector<std::string>& inputs) const {
    const std::string kept = run_ + "/" + kRunDataFile;
    ASSERT_TRUE(stdfs::exists(kept));
    const std::vector<Prediction> with_both = predictions(inputs);
    stdfs::rename(kept, kept + ".away");
    const std::vector<Prediction> of_data = predictions(inputs);
    stdfs::rename(kept + ".away", kept);
    stdfs::remove_all(dir_ + "/data");
    const std::vector<Prediction> alone = predictions(inputs);
    expect_equal(of_data, with_both);
    expect_equal(of_data, alone);
    // What needs the data says so.
    expect_missing([&] { predictions({"test:0"}); });
    expect_missing([&] { evaluate(run_, {}); });
    stdfs::remove(kept);
    expect_missing([&] { predictions(inputs); });
  }

  static void expect_missing(const std::function<void()>& f) {
    try {
      f();
      ADD_FAILURE() << "nothing was missing";
    } catch (const UserError& e) {
      EXPECT_EQ(e.exit_code(), Exit::missing_input) << e.what();
    }
  }

  std::string table(bool classes) const {
    std::string text = "size,colour,id,kind\n";
    for (int i = 0; i < 20; ++i)
      text += std::to_string(0.1 * i) + (i % 3 ? ",caf\xe9," : ",blue,") + std::to_string(i) + "," +
              (classes ? i % 2 ? "odd \xe9" : "even" : std::to_string(1e5 + i / 3.0)) + "\n";
    return text;
  }

  std::string dir_, run_;
};

TEST_F(PredictWithoutData, ValuesOfTables) {
  write("data/t.csv", table(false));
  train_run("/t.csv\"\nsource = \"csv\"\ntarget = \"value\"\nignore = \"id\"");
  const std::string rows = write("new.csv", "colour,size\ncaf\xe9,0.7\nblue,-3\nunseen,1e6\n");
  expect_same_without_data({rows});
}

TEST_F(PredictWithoutData, ClassesOfTables) {
  write("data/t.csv", table(true));
  train_run("/t.csv\"\nsource = \"csv\"\nignore = \"id\"\nclasses = 2\nrow = 1");
  const std::string rows = write("new.csv", "0.7,blue,1\n2,caf\xe9,2\n");
  const std::vector<Prediction> p = predictions({rows});
  ASSERT_EQ(p.size(), 2u);
  EXPECT_EQ(p[0].name, p[0].label == 1 ? "odd \xe9" : "even");
  expect_same_without_data({rows});
}

// A run that was trained without a pass is used without it.
TEST_F(PredictWithoutData, PassesOfTheRunAreThoseOfItsUse) {
  const Recipe r = parse_recipe("[data]\nsource = \"synthetic\"\n[train]\nsteps = 1\n", "passes.toml");
  const AddedPass mine{"", {"mine", [](StepSet s, const PassContext&) { return s; }, Level::tensor}};
  TrainOptions o;
  o.out = run_;
  o.compile.passes.disabled = {"fuse"};
  o.compile.passes.added = {mine};
  train(r, o);
  std::vector<std::string> warnings;
  set_warning_sink([&](const std::string& text) { warnings.push_back(text); });
  EXPECT_EQ(passes_of_run(run_).disabled, std::vector<std::string>{"fuse"});
  EXPECT_EQ(warnings.size(), 1u);  // "mine" is left out
  PipelineOptions own;
  own.added = {mine};
  EXPECT_EQ(passes_of_run(run_, Which::newest, own).disabled, std::vector<std::string>{"fuse"});
  EXPECT_EQ(warnings.size(), 1u);
  set_warning_sink({});
}

TEST_F(PredictWithoutData, ArraysAndThePredictor) {
  std::vector<float> x, y;
  for (int i = 0; i < 60; ++i) x.push_back(std::sin(static_cast<float>(i)) * static_cast<float>(1 + i % 3));
  for (int i = 0; i < 20; ++i) y.push_back(static_cast<float>(1000 + i));
  write("data/x.npy", npy_file("(20, 3)", x));
  write("data/y.npy", npy_file("(20,)", y));
  train_run("\"\nsource = \"npy\"\ntarget = \"value\"");
  const std::vector<float> in{0.1f, 0.2f, 0.3f};
  const auto call = [&] {
    float out = 0;
    Predictor net(run_);
    net(in, {&out, 1});
    return out;
  };
  const float first = call();
  const std::string rows = write("new.npy", npy_file("(2, 3)", {1, 2, 3, 4, 5, 6}));
  const std::string kept = run_ + "/" + kRunDataFile;
  stdfs::copy_file(kept, kept + ".copy");
  expect_same_without_data({rows});
  stdfs::rename(kept + ".copy", kept);
  EXPECT_EQ(call(), first);
  EXPECT_GT(first, 900);  // in the units of the data
}

// Columns of very different size are learned alike, and come back in the units of each.
TEST_F(PredictWithoutData, SeveralNumbersOfDifferentSize) {
  std::vector<float> x, y;
  for (int i = 0; i < 200; ++i) {
    const float a = std::sin(static_cast<float>(i)), b = std::cos(static_cast<float>(3 * i));
    x.insert(x.end(), {a, b});
    y.insert(y.end(), {1000 * a + 5000, 0.01f * b + 0.3f});
  }
  write("data/x.npy", npy_file("(200, 2)", x));
  write("data/y.npy", npy_file("(200, 2)", y));
  train_run("\"\nsource = \"npy\"\ntarget = \"value\"",
            "family = \"mlp\"\nhidden = [16]\n[optimizer]\nname = \"adam\"\nlr = 0.01", "steps = 400");
  const std::string rows = write("new.npy", npy_file("(200, 2)", x));
  const std::vector<Prediction> p = predictions({rows});
  ASSERT_EQ(p.size(), 200u);
  double mean_r2 = 0;
  for (const size_t column : {0, 1}) {
    double sum = 0, squares = 0, errors = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      const double truth = y[2 * i + column];
      sum += truth;
      squares += truth * truth;
      errors += std::pow(p[i].values.at(column) - truth, 2);
    }
    const double r2 = 1 - errors / (squares - sum * sum / 200);
    EXPECT_GT(r2, 0.9) << "column " << column;
    mean_r2 += r2 / 2;
  }
  const EvalResult e = evaluate(run_, {});
  EXPECT_NEAR(e.r2.value(), mean_r2, 0.05);
  EXPECT_LT(e.rmse.value(), 0.3);  // deviations
  // The net inside of a program, with more than one sample at once, as the run's source standardises them.
  const RunData d = load_run_data(run_, load_run_recipe(run_, {}));
  Predictor net(run_, {.batch = 2});
  std::vector<float> in(4), out(4);
  for (size_t i = 0; i < 4; ++i)
    in[i] = static_cast<float>((x[i] - d.preparation.numbers.mean[i % 2]) / d.preparation.numbers.scale[i % 2]);
  net(in, out);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(out[i], p[i / 2].values[i % 2], i % 2 ? 1e-5 : 1) << i;
  expect_same_without_data({rows});
}

TEST_F(PredictWithoutData, Pictures) {
  for (int i = 0; i < 20; ++i) {
    std::vector<uint8_t> pixels(64);
    for (size_t k = 0; k < pixels.size(); ++k) pixels[k] = static_cast<uint8_t>((i % 2 ? 7 * k : 255 - 3 * k) + 5 * i);
    write("data/" + std::string(i % 2 ? "cats/" : "dogs/") + std::to_string(i) + ".png",
          io::encode_png(pixels, 8, 8, 1));
  }
  train_run("\"\nsource = \"png\"\nshape = [8, 8, 1]\nclasses = 2");
  const std::string picture = write("new.png", io::encode_png(std::vector<uint8_t>(64, 77), 8, 8, 1));
  const std::vector<Prediction> p = predictions({picture});
  EXPECT_EQ(p.at(0).name, p.at(0).label == 0 ? "cats" : "dogs");
  expect_same_without_data({picture});
}

TEST_F(PredictWithoutData, Texts) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "the cat sat on the mat. ";
  write("data/t.txt", text);
  train_run("/t.txt\"\nsource = \"text\"",
            "family = \"gpt\"\nlayers = 1\nwidth = 16\nheads = 2\nsequence = 8\nvocab = 128");
  const std::string prompt = write("prompt.txt", "the cat");
  const std::string before = TextWriter(run_, {}).write("the ", 20, {});
  const std::vector<Prediction> files = predictions({prompt});
  stdfs::remove_all(dir_ + "/data");
  EXPECT_EQ(TextWriter(run_, {}).write("the ", 20, {}), before);
  expect_equal(predictions({prompt}), files);
}

// Samples of all inputs are computed with in batches: 7 of 4 at once here, the last one with a gap.
TEST_F(PredictWithoutData, ManyRowsAreAsEachByItself) {
  write("data/t.csv", table(false));
  train_run("/t.csv\"\nsource = \"csv\"\ntarget = \"value\"\nignore = \"id\"");
  std::vector<std::string> inputs;
  std::vector<Prediction> each;
  for (const int rows : {9, 1, 13, 2}) {
    std::string text = "size,colour\n";
    for (int i = 0; i < rows; ++i) text += std::to_string(rows + 0.3 * i) + (i % 2 ? ",blue\n" : ",caf\xe9\n");
    inputs.push_back(write("new" + std::to_string(rows) + ".csv", text));
    std::string first = "size,colour\n";
    for (size_t line = first.size(); line < text.size();) {
      const size_t end = text.find('\n', line) + 1;
      each.push_back(predictions({write("one.csv", first + text.substr(line, end - line))}).at(0));
      line = end;
    }
  }
  const std::vector<Prediction> all = predictions(inputs);
  ASSERT_EQ(all.size(), 25u);
  ASSERT_EQ(each.size(), 25u);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_NEAR(all[i].values.at(0), each[i].values.at(0), 1e-4) << i;
  EXPECT_GT(std::abs(all[0].values[0] - all[1].values[0]), 1e-2);  // rows differ by more than that
  EXPECT_EQ(all[9].input, inputs[1] + ":2");
  EXPECT_EQ(all[24].input, inputs[3] + ":3");
}

TEST_F(PredictWithoutData, FilesThatDoNotFitTheRecipeAreRefused) {
  write("data/t.csv", table(false));
  train_run("/t.csv\"\nsource = \"csv\"\ntarget = \"value\"\nignore = \"id\"");
  const std::string rows = write("new.csv", "colour,size\nblue,1\n"), kept = run_ + "/" + kRunDataFile;
  const RunData good = load_run_data(run_, load_run_recipe(run_, {}));
  const auto expect = [&](const std::function<void(RunData&)>& edit, const std::string& part) {
    RunData d = good;
    edit(d);
    std::ofstream(kept) << to_json(d);
    try {
      predictions({rows});
      ADD_FAILURE() << part;
    } catch (const Error& e) {
      EXPECT_NE(e.exit_code(), Exit::internal) << e.what();
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what() << " has no " << part;
    }
  };
  expect([](RunData& d) { d.spec.label = {DType::i32, {}}; }, "target: expected f32[1], as the recipe");
  expect([](RunData& d) { d.preparation.table.reset(); }, "table: expected one, as the recipe");
  expect([](RunData& d) { d.preparation.numbers = {{0, 0, 0}, {1, 1, 1}}; }, "numbers: expected none, as the recipe");
  expect([](RunData& d) { d.spec.train = 1; }, "train.batch_size");
  expect(
      [](RunData& d) {
        d.preparation.table->columns[0].kind = data::CsvColumn::Kind::ignored;
        d.spec.sample.shape = {1, 2, 1};
      },
      "does not fit: ");
  expect([](RunData& d) { d.spec.sample.shape = {1, int64_t{1} << 36, 1}; }, "table.columns: expected columns of");
  std::ofstream(kept) << "{}";
  EXPECT_THROW(predictions({rows}), UserError);
  // Rows that are read in another way are described by the data.
  EXPECT_EQ(load_run_data(run_, load_run_recipe(run_, {"data.standardize=false"})).preparation.table->columns[0].mean,
            0);
}

}  // namespace
}  // namespace lathe
