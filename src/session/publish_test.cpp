// Checkpoints that four ranks write together: killed at any call, or with a rank that cannot go on, the newest valid
// one is the new one or the one before, whole.
#include "session/publish.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include "comm/collectives.h"
#include "comm/run_ranks.h"
#include "comm/threads.h"
#include "io/files/fault_fs.h"
#include "io/kill_test_util.h"
#include "io/test_util.h"

namespace lathe {
namespace {

using io::FaultFs;

constexpr int kRanks = 4;
constexpr int64_t kUnit = 5000;  // bytes of a rank's part of the tensor
const TensorType kType{DType::u8, {kRanks * kUnit}};

// A file that needs a part of each rank, and one that does not.
std::vector<io::CheckpointFile> files_of(comm::Group& group, int64_t step) {
  const auto whole = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(kRanks * kUnit));
  const auto gather = [&group, step, whole]() -> std::span<const std::byte> {
    std::fill_n(whole->begin() + group.rank() * kUnit, kUnit, static_cast<std::byte>(step + group.rank()));
    comm::Collectives(group).all_gather(*whole, kUnit);
    return *whole;
  };
  return {io::tensor_file("model.safetensors", {{"w", kType, {}, gather}}),
          io::text_file("state.json", std::string(20'000, static_cast<char>('a' + step % 26)))};
}

using Rule = std::function<int64_t(int rank, std::string_view call, int64_t n)>;  // see FaultFs::Rule; n: of the rank

std::string save(const std::string& dir, int64_t step, const Rule& rule) {
  const auto groups = comm::thread_groups(kRanks, {.timeout = 20});
  std::vector<std::string> paths(kRanks);
  comm::run_ranks(groups, [&](comm::Group& group) {
    io::PosixFs posix;
    FaultFs fs(posix, [&](std::string_view call, int64_t n) { return rule(group.rank(), call, n); });
    const auto about = [&] { return io::Manifest{.step = step, .recipe_hash = "r"}; };
    const auto files = files_of(group, step);
    paths[static_cast<size_t>(group.rank())] = publish_checkpoint(&group, fs, dir, "job", about, files);
  });
  for (const std::string& path : paths) EXPECT_EQ(path, paths[0]);
  return paths[0];
}

std::string save(const std::string& dir, int64_t step) {
  return save(dir, step, [](int, std::string_view, int64_t) { return 0; });
}

// The newest valid step, whose content is looked at.
int64_t newest(const std::string& dir) {
  io::PosixFs fs;
  io::Notes notes;
  const auto found = io::find_newest_valid(fs, dir, io::Verify::full, notes);
  EXPECT_TRUE(notes.empty()) << notes[0];
  if (!found) return -1;
  const int64_t step = found->manifest.step;
  const auto file = io::SafetensorsFile::open(fs, found->path + "/model.safetensors");
  std::vector<std::byte> w(static_cast<size_t>(kType.bytes()));
  file.read(*file.find("w"), w);
  for (int r = 0; r < kRanks; ++r)
    EXPECT_EQ(std::count(w.begin() + r * kUnit, w.begin() + (r + 1) * kUnit, static_cast<std::byte>(step + r)), kUnit);
  EXPECT_EQ(io::get_file(found->path + "/state.json"), std::string(20'000, static_cast<char>('a' + step % 26)));
  return step;
}

void expect_no_rubbish(const std::string& dir) {
  io::PosixFs fs;
  for (const std::string& name : io::list_dir(fs, dir)) EXPECT_FALSE(name.starts_with('.')) << name;
}

TEST(Publish, FourRanksWriteTheFilesOfOne) {
  const io::TempDir run;
  const std::string path = save(run / "four", 3);
  EXPECT_EQ(newest(run / "four"), 3);
  io::PosixFs fs;
  const io::Inspection found = io::inspect_checkpoint(fs, path, io::Verify::full);
  for (const io::ManifestFile& f : found.manifest.files) EXPECT_EQ(f.pieces.size(), size_t{kRanks}) << f.name;
  const std::string one = publish_checkpoint(
      nullptr, fs, run / "one", "job", [] { return io::Manifest{.step = 3}; },
      std::vector{io::text_file("state.json", io::get_file(path + "/state.json"))});
  EXPECT_EQ(io::get_file(one + "/state.json"), io::get_file(path + "/state.json"));
  EXPECT_EQ(save(run / "four", 3), path) << "a valid one is kept";
  expect_no_rubbish(run / "four");
}

// All ranks at once, as with their machine.
TEST(Publish, KilledAtEveryCall) {
  const io::TempDir run;
  const std::string dir = run / "checkpoints";
  save(dir, 1);
  const auto save_until = [&](int64_t step, int64_t n) {
    std::atomic<int64_t> calls = 0;
    save(dir, step, [&](int, std::string_view, int64_t) {
      if (++calls == n) ::kill(::getpid(), SIGKILL);
      return 0;
    });
  };
  EXPECT_GT(io::kill_at_every_call(dir, save_until, [&] { return newest(dir); }), 40);
}

// One rank alone, at each of its calls: the others end with it, and what is there stays.
TEST(Publish, ARankThatDiesAtAnyCall) {
  const io::TempDir run;
  const std::string dir = run / "checkpoints";
  save(dir, 1);
  int64_t before = 1, step = 1;
  for (const int dying : {0, 1, kRanks - 1}) {
    bool finished = false;
    for (int64_t at = 1; !finished; ++at) {
      ++step;
      try {
        save(dir, step, [&](int rank, std::string_view, int64_t n) -> int64_t {
          if (rank == dying && n == at) throw InternalError("died");
          return 0;
        });
        finished = true;
      } catch (const Error& e) {
        EXPECT_CONTAINS(e.what(), "died");
      }
      const int64_t found = newest(dir);
      EXPECT_TRUE(found == step || (found == before && !finished)) << found << ", rank " << dying << ", call " << at;
      before = found;
      ASSERT_LT(at, 500);
    }
  }
}

// A rank that cannot write: the same error for all, which says who, and nobody waits.
TEST(Publish, AnyFailingCallIsAnErrorOfAll) {
  const io::TempDir run;
  const std::string dir = run / "checkpoints";
  save(dir, 1);
  for (const int failing : {0, 2}) {
    for (int64_t at = 1;; ++at) {
      std::atomic<int64_t> calls = 0;
      std::atomic<int> told = 0;
      const auto groups = comm::thread_groups(kRanks, {.timeout = 20});
      comm::run_ranks(groups, [&](comm::Group& group) {
        io::PosixFs posix;
        FaultFs fs(posix, [&](std::string_view call, int64_t n) -> int64_t {
          if (group.rank() == failing) calls = n;
          return group.rank() == failing && n == at && call != "list" && call != "info_at" ? -ENOSPC : 0;
        });
        const auto about = [] { return io::Manifest{.step = 2, .recipe_hash = "r"}; };
        const auto files = files_of(group, 2);
        const std::string text = io::error_of([&] { publish_checkpoint(&group, fs, dir, "job", about, files); });
        if (text.empty()) return;
        ++told;
        EXPECT_CONTAINS(text, "No space left");
        if (failing > 0) {
          EXPECT_CONTAINS(text, "rank 2: ");
        }
      });
      EXPECT_TRUE(told == 0 || told == kRanks) << told << " ranks were told";
      const int64_t found = newest(dir);
      EXPECT_TRUE(found == 2 || (found == 1 && told > 0));
      expect_no_rubbish(dir);
      std::filesystem::remove_all(dir + "/" + io::step_name(2));
      if (at > calls) break;
    }
  }
}

}  // namespace
}  // namespace lathe
