#include "rundir/runs.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "io/run_lock.h"
#include "io/test_util.h"
#include "rundir/run_checkpoints.h"

namespace lathe {
namespace {

using io::put_file;
using io::TempDir;

constexpr const char* kLog =
    "{\"step\":1,\"epoch\":0.5,\"loss\":2.5,\"lr\":0.1,\"grad_norm\":1.0,\"skipped\":0}\n"
    "{\"step\":2,\"epoch\":1.0,\"loss\":null,\"lr\":0.1,\"grad_norm\":1.0,\"skipped\":0}\n"
    "{\"step\":2,\"eval_loss\":1.5,\"eval_accuracy\":0.5}\n"
    "{\"step\":4,\"eval_loss\":1.75,\"eval_accuracy\":0.625}\n"
    "{\"step\":4,\"epo";  // torn

std::string make_run(const TempDir& dir, const std::string& name, const std::string& sets, const std::string& log,
                     const std::string& summary) {
  const std::string path = dir / name;
  std::filesystem::create_directories(path);
  put_file(io::join_path(path, "recipe.toml"), "name = \"tried\"\n" + sets);
  put_file(io::join_path(path, "metrics.jsonl"), log);
  if (!summary.empty()) put_file(io::join_path(path, "summary.json"), summary);
  return path;
}

TEST(Runs, AreFoundInDirectories) {
  const TempDir dir;
  make_run(dir, "b", "", "", "");
  make_run(dir, "a", "", "", "");
  std::filesystem::create_directories(dir / "no_run");
  put_file(dir / "file", "");
  EXPECT_EQ(find_runs(dir.path()), (std::vector<std::string>{dir / "a", dir / "b"}));
  EXPECT_EQ(find_runs(dir / "a"), (std::vector<std::string>{dir / "a"}));
  EXPECT_TRUE(find_runs(dir / "no_run").empty());
  Exit code{};
  EXPECT_CONTAINS(io::error_of([&] { find_runs(dir / "none"); }, &code), "no such directory");
  EXPECT_EQ(code, Exit::missing_input);
}

TEST(Runs, BestValuesAndProgressComeFromTheLog) {
  const TempDir dir;
  const RunInfo r = read_run(make_run(dir, "a", "[train]\nepochs = 2\n", kLog,
                                      "{\"steps\": 4, \"preempted\": false, \"training_seconds\": 61.2}"));
  EXPECT_EQ(r.state, RunState::finished) << r.problem;
  ASSERT_EQ(r.warnings.size(), 1u);
  EXPECT_CONTAINS(r.warnings[0], "metrics.jsonl: the last line is cut");
  EXPECT_EQ(r.step, 4);
  EXPECT_EQ(r.total_steps, 4);
  EXPECT_EQ(r.seconds, 61.2);
  EXPECT_EQ(r.best("eval_loss"), 1.5);
  EXPECT_EQ(r.best("eval_accuracy"), 0.625);
  EXPECT_EQ(r.best("loss"), 2.5) << "a loss that was not finite is no point";
  EXPECT_FALSE(r.best("nothing"));
  const io::ReportTable t = runs_table({r});
  EXPECT_EQ(t.header, (std::vector<std::string>{"run", "recipe", "model", "device", "steps", "test accuracy",
                                                "test loss", "time", "state"}));
  EXPECT_EQ(t.rows.at(0),
            (std::vector<std::string>{"a", "tried", "mlp", "cpu", "4", "62.50 %", "1.75", "1:01", "finished"}))
      << "of the test set the last";
}

TEST(Runs, OfTheValidationSetTheBestIsShown) {
  const TempDir dir;
  const RunInfo r = read_run(make_run(dir, "a", "[data]\nvalidation = 0.1\n",
                                      "{\"step\":2,\"validation_loss\":1.5,\"validation_accuracy\":0.5}\n"
                                      "{\"step\":4,\"validation_loss\":1.75,\"validation_accuracy\":0.625}\n"
                                      "{\"step\":4,\"eval_loss\":1.875,\"eval_accuracy\":0.25}\n",
                                      "{\"steps\": 4, \"preempted\": false}"));
  const io::ReportTable t = runs_table({r});
  const auto part = [](const std::vector<std::string>& row) {
    return std::vector<std::string>(row.begin() + 5, row.begin() + 9);
  };
  EXPECT_EQ(part(t.header), (std::vector<std::string>{"best validation accuracy", "best validation loss",
                                                      "test accuracy", "test loss"}));
  EXPECT_EQ(part(t.rows.at(0)), (std::vector<std::string>{"62.50 %", "1.5", "25.00 %", "1.875"}));
  EXPECT_CONTAINS(compare_svg({r}), "validation loss");
  const RunInfo tested = read_run(make_run(dir, "b", "", kLog, ""));
  EXPECT_CONTAINS(compare_svg({r, tested}), "test loss");
}

// A run of a program: [model] in any of the forms that TOML has, with keys that Lathe does not know.
std::string make_foreign_run(const TempDir& dir, const char* name, const std::string& model) {
  Recipe r = parse_recipe("", "mine");
  r.model.params = ParamSet();
  std::string text = to_toml(r);
  const std::string plain = "[model]\nfamily = \"mlp\"\n";
  EXPECT_NE(text.find(plain), text.npos);
  text.replace(text.find(plain), plain.size(), model);
  const std::string path = make_run(dir, name, "", kLog, "{\"steps\":4,\"preempted\":false}");
  put_file(io::join_path(path, "recipe.toml"), text);
  return path;
}

TEST(Runs, AFamilyOfAProgramIsNamed) {
  const TempDir dir;
  for (const char* model :
       {"[model]\nfamily = \"mine\"\nsprockets = 3\n", "[ model ]\n'family' = 'mine'\nwide = true\n",
        "[model]\nfamily = \"mine\"\nhidden = 'no list'\n[[model.parts]]\ntype = 1\n",
        "[model]\nfamily = \"mine\"\n"}) {
    SCOPED_TRACE(model);
    const std::string path = make_foreign_run(dir, "a", model);
    const RunInfo info = read_run(path);
    EXPECT_EQ(info.state, RunState::finished) << info.problem;
    EXPECT_TRUE(is_foreign(info.recipe));
    EXPECT_EQ(runs_table({info}).rows.at(0).at(2), "mine (of a program)");
    Exit code{};
    const std::string error = io::error_of([&] { load_run_recipe(path, {}); }, &code);
    EXPECT_CONTAINS(error, "got \"mine\"; if the run was made by a program with a family of its own");
    EXPECT_EQ(error.find('\n'), error.npos) << "of the keys of that family nothing is known";
    EXPECT_EQ(code, Exit::bad_recipe);
  }
}

TEST(Runs, KeysOfAProgramAreComparedAsTheyAreWritten) {
  const TempDir dir;
  const RunInfo plain = read_run(make_run(dir, "plain", "[model]\nfamily = \"mlp\"\nhidden = [8]\n", kLog, ""));
  const RunInfo a = read_run(make_foreign_run(dir, "a", "[model]\nfamily = \"mine\"\nteeth = [1, 2.5]\nwide = true\n"));
  const RunInfo b = read_run(make_foreign_run(
      dir, "b", "[model]\nfamily = 'mine'\nteeth = [ 1,2.50 ]\nwide = false\nparts = [{ type = 'cog', n = 3 }]\n"));
  const auto found = [](const std::vector<RunInfo>& runs) {
    std::vector<std::vector<std::string>> rows;
    for (const RunDifference& d : run_differences(runs)) {
      if (!d.key.starts_with("model.")) continue;
      rows.push_back({d.key});
      rows.back().insert(rows.back().end(), d.values.begin(), d.values.end());
    }
    return rows;
  };
  using Rows = std::vector<std::vector<std::string>>;
  EXPECT_EQ(found({a, b}),
            (Rows{{"model.wide", "true", "false"}, {"model.parts", "-", "[{ n = 3, type = \"cog\" }]"}}));
  EXPECT_EQ(found({plain, a}), (Rows{{"model.family", "\"mlp\"", "\"mine\""},
                                     {"model.hidden", "[8]", "-"},
                                     {"model.teeth", "-", "[1, 2.5]"},
                                     {"model.wide", "-", "true"}}));
  // What one of three does not have is no default of it either.
  const RunInfo cnn = read_run(make_run(dir, "cnn", "[model]\nfamily = \"cnn\"\n", kLog, ""));
  const RunInfo usual = read_run(make_run(dir, "usual", "", kLog, ""));
  EXPECT_EQ(found({usual, cnn, plain}),
            (Rows{{"model.family", "\"mlp\"", "\"cnn\"", "\"mlp\""}, {"model.hidden", "[512, 512]", "-", "[8]"}}));
}

TEST(Runs, WhatANetWasTrainedForStays) {
  const TempDir dir;
  const std::string path = make_run(dir, "a", "[data]\nsource = \"synthetic\"\n", kLog, "");
  for (const char* set : {"train.loss=focal", "data.target=value"})
    EXPECT_CONTAINS(io::error_of([&] { load_run_recipe(path, {set}); }), "was trained for");
  EXPECT_EQ(load_run_recipe(path, {"data.prefetch=7"}).data.prefetch, 7);
}

TEST(Runs, LinesThatAreNoMetricsAreToldOf) {
  const TempDir dir;
  const RunInfo r = read_run(make_run(dir, "a", "", "{\"step\":1,\"loss\":2}\ngarbage\n[]\n{\"step\":3,\"loss\":1}\n",
                                      "{\"steps\":3,\"preempted\":false}"));
  EXPECT_EQ(r.curves.at("loss").y.size(), 2u);
  ASSERT_EQ(r.warnings.size(), 1u);
  EXPECT_CONTAINS(r.warnings[0], "metrics.jsonl:2: and 1 more lines are no objects");
}

TEST(Runs, StepsBetweenTwoLinesCount) {
  const TempDir dir;
  const RunInfo r = read_run(make_run(dir, "a", "[train]\nsteps = 9\n", kLog,
                                      "{\"steps\":7,\"preempted\":true,\"training_seconds\":3,\"timed_from_step\":2}"));
  EXPECT_EQ(r.state, RunState::stopped);
  EXPECT_EQ(r.step, 7);
  EXPECT_EQ(runs_table({r}).rows.at(0).at(4), "7 of 9");
  EXPECT_EQ(runs_table({r}).rows.at(0).at(7), "> 3.0 s") << "what the first two steps took is not known";
}

// A run that was killed in its second part: what its checkpoint says, and what came after it.
TEST(Runs, TimeOfAKilledRunIsThatOfAllParts) {
  const TempDir dir;
  const std::string path = make_run(dir, "a", "", kLog, "");
  EXPECT_LT(read_run(path).seconds.value(), 60);
  const std::string step = io::join_path(path, "checkpoints/" + io::step_name(2));
  std::filesystem::create_directories(step);
  const auto keep = [&](const std::map<std::string, std::string>& info) {
    put_file(io::join_path(step, "manifest.json"), io::to_json(io::Manifest{.step = 2, .info = info}));
    return read_run(path);
  };
  const RunInfo r = keep({{kSecondsInfo, "100.5"}, {kTimedFromInfo, "0"}});
  EXPECT_EQ(r.state, RunState::failed);
  EXPECT_NEAR(r.seconds.value(), 100.5, 60);
  EXPECT_GE(r.seconds.value(), 100.5);
  EXPECT_EQ(keep({{kSecondsInfo, "100.5"}, {kTimedFromInfo, "1"}}).timed_from, 1);
  EXPECT_LT(keep({}).seconds.value(), 60) << "a checkpoint without times";
  put_file(io::join_path(step, "manifest.json"), "damaged");
  EXPECT_LT(read_run(path).seconds.value(), 60);
}

TEST(Runs, RefusedStepsAreAColumnWhereThereAreSome) {
  const TempDir dir;
  const RunInfo good = read_run(make_run(dir, "a", "", kLog, "")),
                bad = read_run(make_run(dir, "b", "", "{\"step\":9,\"loss\":null,\"skipped\":8}\n", ""));
  EXPECT_EQ(bad.skipped, 8);
  const auto header = runs_table({good}).header;
  EXPECT_EQ(std::ranges::count(header, "refused"), 0);
  const io::ReportTable t = runs_table({good, bad});
  EXPECT_EQ(t.header.at(t.header.size() - 3), "refused");
  EXPECT_EQ(t.rows.at(1).at(t.header.size() - 3), "8");
}

TEST(Runs, TablesFitAWidth) {
  const io::ReportTable wide{
      {"run", "recipe", "model", "device", "steps", "test accuracy", "test loss", "time", "state"},
      {{"a", "tried", "mlp", "cpu", "4", "62.50 %", "1.5", "1:01", "finished"}}};
  io::ReportTable t = wide;
  EXPECT_TRUE(narrow_runs_table(t, 200).empty());
  EXPECT_EQ(t.header, wide.header);
  EXPECT_EQ(narrow_runs_table(t, 70), std::vector<std::string>{"device"});
  EXPECT_EQ(t.rows.at(0).size(), t.header.size());
  EXPECT_EQ(narrow_runs_table(t, 10).size(), 4u);
  EXPECT_EQ(t.header, (std::vector<std::string>{"run", "steps", "time", "state"}));
  EXPECT_EQ(t.rows.at(0), (std::vector<std::string>{"a", "4", "1:01", "finished"}));
}

TEST(Runs, MetricsHaveTheirUnits) {
  const TempDir dir;
  const RunInfo r = read_run(make_run(dir, "a", "",
                                      "{\"step\":2,\"eval_iou\":0.5,\"eval_psnr\":27.25,\"eval_input_psnr\":22,"
                                      "\"eval_perplexity\":7.875}\n",
                                      ""));
  const io::ReportTable t = runs_table({r});
  const std::vector<std::string> names(t.header.begin() + 5, t.header.end() - 2);
  EXPECT_EQ(names, (std::vector<std::string>{"test iou", "test perplexity", "test psnr"}))
      << "what the input had is no result";
  const std::vector<std::string> values(t.rows.at(0).begin() + 5, t.rows.at(0).end() - 2);
  EXPECT_EQ(values, (std::vector<std::string>{"50.00 %", "7.875", "27.25 dB"}));
}

TEST(Runs, StatesAreToldApart) {
  const TempDir dir;
  const auto state = [&](const std::string& name, const std::string& summary) {
    return read_run(make_run(dir, name, "", kLog, summary)).state;
  };
  EXPECT_EQ(state("finished", "{\"steps\":4,\"preempted\":false}"), RunState::finished);
  EXPECT_EQ(state("stopped", "{\"steps\":4,\"preempted\":true}"), RunState::stopped);
  EXPECT_EQ(state("failed", ""), RunState::failed);
  EXPECT_EQ(state("resumed_and_killed", "{\"steps\":2,\"preempted\":true}"), RunState::failed);
  EXPECT_EQ(state("bad_summary", "{\"steps\":"), RunState::failed);
  const std::string path = make_run(dir, "running", "", kLog, "{\"steps\":4,\"preempted\":true}");
  {
    const io::RunLock lock(path, {});
    EXPECT_EQ(read_run(path).state, RunState::running);
  }
  EXPECT_EQ(read_run(path).state, RunState::stopped);
  put_file(io::join_path(path, "recipe.toml"), "[model]\nfamily = 3\n");
  const RunInfo bad = read_run(path);
  EXPECT_EQ(bad.state, RunState::unreadable);
  EXPECT_CONTAINS(bad.problem, "model.family");
  EXPECT_EQ(runs_table({bad}).rows.at(0).back(), "unreadable");
}

TEST(Runs, HoldersOfLocksAreAliveOrNot) {
  const TempDir dir;
  EXPECT_FALSE(io::is_run_alive(dir.path()));
  const auto held_by = [&](const std::string& holder) {
    put_file(dir / ".lock", holder + "\n");
    return io::is_run_alive(dir.path(), {.host = "here"});
  };
  EXPECT_TRUE(held_by(fmt::format("here:{}:0", ::getpid())));
  EXPECT_FALSE(held_by("here:999999999:0"));
  EXPECT_FALSE(held_by("here:x:0"));
  EXPECT_TRUE(held_by("elsewhere:1:0")) << "the file was written just now";
  struct timespec old[2] = {{1000, 0}, {1000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (dir / ".lock").c_str(), old, 0), 0);
  EXPECT_FALSE(io::is_run_alive(dir.path(), {.host = "here"}));
}

TEST(Runs, DifferencesNameEveryKeyOnce) {
  const TempDir dir;
  const std::vector<RunInfo> runs{read_run(make_run(dir, "a", "seed = 1\n", kLog, "")),
                                  read_run(make_run(dir, "b", "seed = 2\n[optimizer]\nlr = 0.5\n", kLog, "")),
                                  read_run(make_run(dir, "c", "seed = 1\n[optimizer]\nlr = 0.25\n", kLog, ""))};
  const auto d = run_differences(runs);
  ASSERT_EQ(d.size(), 2u);
  EXPECT_EQ(d[0].key, "seed");
  EXPECT_EQ(d[0].values, (std::vector<std::string>{"1", "2", "1"}));
  EXPECT_EQ(d[1].key, "optimizer.lr");
  EXPECT_EQ(d[1].values, (std::vector<std::string>{"0.1", "0.5", "0.25"}));
  EXPECT_TRUE(run_differences({runs[0], runs[0]}).empty());
  const std::string svg = compare_svg(runs), html = compare_html(runs);
  for (const char* name : {">a, last: 1.75<", ">b, last: 1.75<", ">c, last: 1.75<"})
    EXPECT_NE(svg.find(name), std::string::npos) << name << svg;
  for (const char* part : {"optimizer.<wbr>lr", "0.25", "eval_accuracy (test)", "grad_norm", "failed"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
  EXPECT_EQ(compare_svg({}), "");
}

}  // namespace
}  // namespace lathe
