#include "io/checkpoint.h"

#include <random>

#include "io/files/crash_fs.h"
#include "io/files/fault_fs.h"
#include "io/test_util.h"

namespace lathe::io {
namespace {

// The content of a checkpoint is a function of its step, so that a mixture of two steps cannot go unnoticed.
std::vector<float> values_at(int64_t step, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(step * 1000) + static_cast<float>(i);
  return values;
}
std::string state_at(int64_t step) { return fmt::format("{{\"step\": {}}}", step); }

Manifest about(int64_t step, std::string recipe = "r1") {
  return {.step = step,
          .recipe_hash = std::move(recipe),
          .software = "lathe test",
          .isa = "none",
          .info = {{"world", "1"}}};
}

// By one rank, or by several, one after another.
std::string save(Fs& fs, const std::string& dir, int64_t step, const std::string& recipe = "r1", int ranks = 1) {
  const std::vector<float> model = values_at(step, 300), optimizer = values_at(step, 600);
  const std::vector<CheckpointFile> files = {
      tensor_file("model.safetensors", {{"w", {DType::f32, {300}}, std::as_bytes(std::span(model))}}),
      tensor_file("optimizer.safetensors", {{"m", {DType::f32, {600}}, std::as_bytes(std::span(optimizer))}}),
      text_file("state.json", state_at(step))};
  if (ranks == 1) return publish_checkpoint(fs, dir, "job", about(step, recipe), files);
  CheckpointWriter writer(fs, dir, "job", about(step, recipe));
  writer.prepare(files);
  std::vector<std::vector<FileDigest>> pieces(files.size());
  for (int r = 0; r < ranks; ++r)
    for (size_t f = 0; const FileDigest& d : write_slices(fs, writer.path(), files, ranks, r)) pieces[f++].push_back(d);
  for (size_t f = 0; f < files.size(); ++f) writer.record(files[f].name, pieces[f]);
  return writer.publish();
}

void expect_content(Fs& fs, const Checkpoint& c) {
  const int64_t step = c.manifest.step;
  EXPECT_EQ(c.path.substr(c.path.rfind('/') + 1), step_name(step));
  EXPECT_EQ(get_file(fs, c.path + "/state.json"), state_at(step));
  for (const auto& [name, count] : {std::pair{"model", 300}, std::pair{"optimizer", 600}}) {
    const auto file = SafetensorsFile::open(fs, fmt::format("{}/{}.safetensors", c.path, name));
    std::vector<float> got(static_cast<size_t>(count));
    file.read(file.tensors().at(0), std::as_writable_bytes(std::span(got)));
    EXPECT_EQ(got, values_at(step, got.size()));
  }
}

// The step of the newest valid checkpoint after checking all of its content; -1 if there is none.
int64_t newest(Fs& fs, const std::string& dir, Verify verify = Verify::full) {
  Notes notes;
  const auto found = find_newest_valid(fs, dir, verify, notes);
  if (!found) return -1;
  expect_content(fs, *found);
  return found->manifest.step;
}

bool has_leftovers(Fs& fs, const std::string& dir) {
  for (const std::string& name : list_dir(fs, dir))
    if (name.starts_with('.')) return true;
  return false;
}

TEST(Manifest, RoundTripsAndNoticesEveryDamagedByte) {
  Manifest m = about(12);
  m.files = {{"a.safetensors", {{.size = 5, .xxh3 = "00"}}},
             {"b", {{.size = 0, .xxh3 = "11"}}},
             {"c", {{.size = 7, .xxh3 = "22"}, {.size = 3, .xxh3 = "33"}}}};
  m.version = version_for(m);
  EXPECT_EQ(m.version, 2);
  EXPECT_EQ(m.files[2].size(), 10);
  const std::string text = to_json(m);
  EXPECT_EQ(parse_manifest(text), m);
  for (size_t i = 0; i < text.size(); ++i) {
    std::string bad = text;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    EXPECT_THROW(parse_manifest(bad), UserError) << i;
    EXPECT_THROW(parse_manifest(text.substr(0, i)), UserError) << i;
  }
}

TEST(Manifest, HostileContentWithARightChecksum) {
  const auto seal = [](std::string body) {
    return fmt::format("{},\n  \"checksum\": \"{}\"\n}}\n", body, hash_bytes(bytes_of(body)));
  };
  const std::string head =
      R"({"format":"lathe-checkpoint","version":1,"software":"x","isa":"","recipe_hash":"","info":{},)";
  EXPECT_EQ(parse_manifest(seal(head + R"("step":1,"files":[])")).step, 1);
  for (const char* tail :
       {R"("step":-1,"files":[])", R"("step":1.5,"files":[])", R"("step":"1","files":[])",
        R"("step":18446744073709551615,"files":[])", R"("step":1,"files":[{"name":"../x","size":1,"xxh3":""}])",
        R"("step":1,"files":[{"name":"/etc/passwd","size":1,"xxh3":""}])", R"("step":1,"files":[7])",
        R"("step":1,"files":[{"name":"a","size":1,"xxh3":""},{"name":"a","size":1,"xxh3":""}])", R"("step":1)",
        R"("step":1,"files":[{"name":"a","pieces":[]}])", R"("step":1,"files":[{"name":"a","pieces":7}])",
        R"("step":1,"files":[{"name":"a","pieces":[{"size":-1,"xxh3":""}]}])",
        R"("step":1,"files":[{"name":"a","pieces":[{"size":9223372036854775807,"xxh3":""},{"size":1,"xxh3":""}]}])",
        R"("files":[])"})
    EXPECT_THROW(parse_manifest(seal(head + tail)), UserError) << tail;
  EXPECT_THROW(parse_manifest(seal(head + "\"step\":" + std::string(1'000'000, '[') + std::string(1'000'000, ']'))),
               UserError);
  EXPECT_THROW(parse_manifest(seal("[1")), UserError);
}

class Checkpoints : public ::testing::Test {
 protected:
  PosixFs fs;
  TempDir run;
  const std::string dir = run / "checkpoints";
};

TEST_F(Checkpoints, PublishesAndFindsTheNewest) {
  EXPECT_EQ(newest(fs, dir), -1);
  EXPECT_EQ(save(fs, dir, 9), dir + "/step-000000009");
  save(fs, dir, 10);
  save(fs, dir, 2);
  EXPECT_EQ(newest(fs, dir), 10);
  EXPECT_EQ(list_steps(fs, dir), (std::vector<int64_t>{2, 9, 10}));
  EXPECT_FALSE(has_leftovers(fs, dir));
  const auto found = inspect_checkpoint(fs, dir + "/step-000000010", Verify::full);
  EXPECT_EQ(found.manifest.info.at("world"), "1");
  EXPECT_EQ(found.manifest.files.size(), 3u);
  // Names that only look like steps are nobody's checkpoint.
  for (const char* name : {"step-11", "step-0000000011", "step-", "step-x00000011", "latest"})
    make_dir(fs, join_path(dir, name));
  EXPECT_EQ(newest(fs, dir), 10);
  // A copy elsewhere is a checkpoint; one under another step's name is not.
  std::filesystem::copy(dir + "/step-000000010", run / "best");
  std::filesystem::copy(dir + "/step-000000010", dir + "/step-000000099");
  EXPECT_EQ(inspect_checkpoint(fs, run / "best", Verify::full).status, Inspection::Status::valid);
  EXPECT_CONTAINS(inspect_checkpoint(fs, dir + "/step-000000099", Verify::full).reason, "of step 10");
}

// F01, second half: resume falls back to the previous valid step and says so.
TEST_F(Checkpoints, StepsBackPastDamage) {
  for (const int64_t step : {1, 2, 3, 4, 5}) save(fs, dir, step);
  const auto file = [&](int64_t step, const char* name) { return dir + "/" + step_name(step) + "/" + name; };
  std::filesystem::resize_file(file(5, "model.safetensors"), 100);
  std::filesystem::remove(file(4, "state.json"));
  std::filesystem::remove(file(3, "manifest.json"));
  Notes notes;
  const auto found = find_newest_valid(fs, dir, Verify::size, notes);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->manifest.step, 2);
  ASSERT_EQ(notes.size(), 3u);
  EXPECT_CONTAINS(notes[0], "model.safetensors: expected");
  EXPECT_CONTAINS(notes[0], "got 100");
  EXPECT_CONTAINS(notes[1], "state.json: missing");
  EXPECT_CONTAINS(notes[2], "manifest.json");
  // A symlink in place of a file would be hashed as its target: refused.
  std::filesystem::rename(file(2, "state.json"), run / "state.json");
  std::filesystem::create_symlink(run / "state.json", file(2, "state.json"));
  EXPECT_EQ(newest(fs, dir), 1);
}

// F02
TEST_F(Checkpoints, EveryFlippedBitIsFound) {
  const std::string path = save(fs, dir, 1);
  std::mt19937_64 rng(7);
  for (int i = 0; i < 1000; ++i) {
    const char* names[] = {"model.safetensors", "optimizer.safetensors", "state.json"};
    const std::string name = path + "/" + names[i % 3];
    const std::string good = get_file(name);
    std::string bad = good;
    bad[rng() % bad.size()] ^= static_cast<char>(1 << rng() % 8);
    put_file(name, bad);
    const Inspection found = inspect_checkpoint(fs, path, Verify::full);
    EXPECT_EQ(found.status, Inspection::Status::damaged);
    EXPECT_CONTAINS(found.reason, "hash mismatch");
    EXPECT_EQ(inspect_checkpoint(fs, path, Verify::size).status, Inspection::Status::valid);
    put_file(name, good);
  }
  EXPECT_EQ(newest(fs, dir), 1);
}

// F09
TEST_F(Checkpoints, NewerFormatIsRefusedWithItsVersion) {
  save(fs, dir, 1);
  const std::string path = save(fs, dir, 2) + "/manifest.json";
  Manifest m = parse_manifest(get_file(path));
  m.version = kManifestVersion + 1;
  m.software = "lathe 9.9";
  put_file(path, to_json(m));
  Notes notes;
  Exit exit = Exit::ok;
  const std::string text = error_of([&] { find_newest_valid(fs, dir, Verify::full, notes); }, &exit);
  EXPECT_CONTAINS(text, "format version 3 (written by lathe 9.9)");
  EXPECT_EQ(exit, Exit::bad_data);
  EXPECT_CONTAINS(error_of([&] { save(fs, dir, 2); }), "format version 3");  // and it is not overwritten either
}

TEST_F(Checkpoints, ExistingStepIsKeptIfValidAndReplacedIfNot) {
  const std::string path = save(fs, dir, 1);
  const auto first = std::filesystem::last_write_time(path + "/manifest.json");
  save(fs, dir, 1);
  EXPECT_EQ(std::filesystem::last_write_time(path + "/manifest.json"), first);
  put_file(path + "/state.json", "damaged");
  save(fs, dir, 1);
  EXPECT_EQ(newest(fs, dir), 1);
  save(fs, dir, 1, "another recipe");
  EXPECT_EQ(inspect_checkpoint(fs, path, Verify::full).manifest.recipe_hash, "another recipe");
  EXPECT_FALSE(has_leftovers(fs, dir));
}

// Whatever the number of ranks, the files are the same; who wrote what stands in the manifest.
TEST_F(Checkpoints, SlicesOfSeveralRanksAreTheFilesOfOne) {
  const std::string one = save(fs, dir, 3);
  EXPECT_EQ(parse_manifest(get_file(one + "/manifest.json")).version, 1);
  for (const int ranks : {2, 3, 8}) {
    SCOPED_TRACE(ranks);
    const std::string path = save(fs, run / std::to_string(ranks), 3, "r1", ranks);
    const Inspection found = inspect_checkpoint(fs, path, Verify::full);
    ASSERT_EQ(found.status, Inspection::Status::valid) << found.reason;
    for (const ManifestFile& f : found.manifest.files)
      EXPECT_EQ(get_file(join_path(path, f.name)), get_file(join_path(one, f.name))) << f.name;
    expect_content(fs, {path, found.manifest});
  }
}

// Files of many pages, that no rank holds alone; a small one is the first rank's.
TEST_F(Checkpoints, SlicesAreWholePages) {
  std::string text;
  for (int i = 0; i < 9000; ++i) text += fmt::format("{} ", i);
  const std::vector<CheckpointFile> files = {text_file("a", text), text_file("b", "small"), text_file("c", "")};
  CheckpointWriter writer(fs, dir, "../job 1", about(3));
  EXPECT_CONTAINS(writer.path(), "/.tmp-step-000000003-.._job_1-");
  writer.prepare(files);
  std::vector<std::vector<FileDigest>> pieces(files.size());
  for (const int r : {0, 1, 2, 3})
    for (size_t f = 0; const FileDigest& d : write_slices(fs, writer.path(), files, 4, r)) pieces[f++].push_back(d);
  for (size_t r = 0; r < 3; ++r) EXPECT_EQ(pieces[0][r].size % 4096, 0) << r;
  for (size_t f = 0; f < files.size(); ++f) writer.record(files[f].name, pieces[f]);
  const std::string path = writer.publish();
  const Inspection found = inspect_checkpoint(fs, path, Verify::full);
  EXPECT_EQ(found.status, Inspection::Status::valid) << found.reason;
  EXPECT_EQ(found.manifest.version, 2);
  EXPECT_EQ(found.manifest.files[0].pieces.size(), 4u);
  EXPECT_EQ(found.manifest.files[1].pieces.size(), 1u);
  EXPECT_EQ(found.manifest.files[2].pieces.size(), 1u);
  EXPECT_EQ(get_file(path + "/a"), text);
  std::string bad = text;
  bad[20000] ^= 1;
  put_file(path + "/a", bad);
  EXPECT_CONTAINS(inspect_checkpoint(fs, path, Verify::full).reason, "in piece 2 of 4");
  EXPECT_EQ(inspect_checkpoint(fs, path, Verify::size).status, Inspection::Status::valid);
}

// A rank that cannot write goes through all files all the same: others may need what it has.
TEST_F(Checkpoints, ARankThatCannotWriteStillGivesWhatItHas) {
  int asked = 0;
  std::vector<std::byte> bytes(40'000);
  const auto make = [&] {
    ++asked;
    return std::span<const std::byte>(bytes);
  };
  const TensorType type{DType::u8, {40'000}};
  const std::vector<CheckpointFile> files = {tensor_file("a", {{"x", type, {}, make}, {"y", type, {}, make}}),
                                             tensor_file("b", {{"x", type, {}, make}})};
  CheckpointWriter writer(fs, dir, "job", about(3));
  writer.prepare(files);
  for (const char* call : {"open_write", "seek", "write", "sync", "close"}) {
    asked = 0;
    FaultFs full(fs, [&](std::string_view name, int64_t) { return name == call ? -ENOSPC : 0; });
    Exit exit = Exit::ok;
    const std::string text = error_of([&] { write_slices(full, writer.path(), files, 3, 1); }, &exit);
    EXPECT_CONTAINS(text, "/a: No space left");
    EXPECT_EQ(exit, Exit::io_error);
    EXPECT_EQ(asked, 3) << call;
  }
}

TEST_F(Checkpoints, LeftoversOfDeadWritersAreRemoved) {
  save(fs, dir, 1);
  for (const char* name : {".tmp-step-000000002-j-1", ".trash-step-000000000-2"}) {
    make_dir(fs, join_path(dir, name));
    put_file(join_path(join_path(dir, name), "model.safetensors"), "half");
  }
  put_file(dir + "/.tmp-mine", "not ours");
  Notes notes;
  clean_leftovers(fs, dir, notes);
  EXPECT_EQ(list_dir(fs, dir), (std::vector<std::string>{".tmp-mine", "step-000000001"}));
  EXPECT_TRUE(notes.empty());
  clean_leftovers(fs, run / "none", notes);
}

TEST_F(Checkpoints, RetentionKeepsTheNewestValidOnes) {
  for (int64_t step = 1; step <= 6; ++step) save(fs, dir, step);
  put_file(dir + "/step-000000005/state.json", "damaged");
  Notes notes;
  Retention retention(2);
  retention.apply(fs, dir, notes);
  // 6 and 4 are the two that validate; 5 is left for the user to look at.
  EXPECT_EQ(list_steps(fs, dir), (std::vector<int64_t>{4, 5, 6}));
  EXPECT_EQ(notes.size(), 1u);
  EXPECT_FALSE(has_leftovers(fs, dir));
  save(fs, dir, 7);
  retention.apply(fs, dir, notes);
  EXPECT_EQ(list_steps(fs, dir), (std::vector<int64_t>{6, 7}));
  retention.apply(fs, run / "none", notes);
  EXPECT_CONTAINS(error_of([] { Retention(0); }), "keep_last");
}

}  // namespace
}  // namespace lathe::io
