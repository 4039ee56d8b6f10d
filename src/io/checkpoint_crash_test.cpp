// Crash consistency of checkpoints: killed or powered off at any call, with any call failing, the newest valid
// checkpoint is the new one or the one before, whole, and nothing needs repair.
#include <random>

#include "io/checkpoint.h"
#include "io/files/crash_fs.h"
#include "io/files/fault_fs.h"
#include "io/kill_test_util.h"
#include "io/test_util.h"

namespace lathe::io {
namespace {

const std::string kDir = "/run/checkpoints";

std::string content(int64_t step, std::string_view name) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += fmt::format("{} {} {}\n", name, step, i);
  return text;
}

constexpr const char* kNames[] = {"model.safetensors", "optimizer.safetensors", "state.json"};

std::vector<CheckpointFile> padded_files(int64_t step) {
  std::vector<CheckpointFile> files;
  for (const char* name : kNames) {
    // In pieces too large to be gathered, so that there are several writes per file to lose.
    const std::string padding(name == kNames[0] ? 300 << 10 : 0, 'p');
    const auto size = static_cast<int64_t>(2 * content(step, name).size() + padding.size());
    files.push_back({name, size, [=](FileWriter& out) {
                       out.write(content(step, name));
                       if (!padding.empty()) out.write(padding);
                       out.write(content(step, name));
                     }});
  }
  return files;
}

void save_padded(Fs& fs, const std::string& dir, int64_t step, std::string recipe = "r1") {
  publish_checkpoint(fs, dir, "job", {.step = step, .recipe_hash = std::move(recipe)}, padded_files(step));
}

// The same by four ranks, one after another.
void save_padded_by_ranks(Fs& fs, const std::string& dir, int64_t step) {
  constexpr int kRanks = 4;
  const std::vector<CheckpointFile> files = padded_files(step);
  CheckpointWriter writer(fs, dir, "job", {.step = step, .recipe_hash = "r1"});
  writer.prepare(files);
  std::vector<std::vector<FileDigest>> pieces(files.size());
  for (int r = 0; r < kRanks; ++r)
    for (size_t f = 0; const FileDigest& d : write_slices(fs, writer.path(), files, kRanks, r))
      pieces[f++].push_back(d);
  for (size_t f = 0; f < files.size(); ++f) writer.record(files[f].name, pieces[f]);
  writer.publish();
}

// The newest valid step, -1 if none; its files are compared with what that step must contain.
int64_t newest_step(Fs& fs, const std::string& dir) {
  Notes notes;
  const auto found = find_newest_valid(fs, dir, Verify::full, notes);
  if (!found) return -1;
  for (const char* name : kNames) {
    const std::string text = get_file(fs, found->path + "/" + name), part = content(found->manifest.step, name);
    EXPECT_TRUE(text.starts_with(part) && text.ends_with(part)) << found->path << " " << name;
  }
  return found->manifest.step;
}

// What the next process does after a crash: find the newest, clean, continue training and save.
void expect_recovery(CrashFs fs, std::set<int64_t> allowed) {
  const int64_t step = newest_step(fs, kDir);
  EXPECT_TRUE(allowed.count(step)) << "found step " << step;
  Notes notes;
  clean_leftovers(fs, kDir, notes);
  EXPECT_TRUE(notes.empty());
  EXPECT_EQ(newest_step(fs, kDir), step);
  save_padded(fs, kDir, 20);
  EXPECT_EQ(newest_step(fs, kDir), 20);
  for (const std::string& name : list_dir(fs, kDir)) EXPECT_FALSE(name.starts_with('.')) << name;
}

// Runs `action` on a copy of `base` with a crash at call n = 1, 2, ... until it runs through, and calls
// check(disk, completed) for each outcome.
template <class Action, class Check>
int64_t crash_at_every_call(const std::function<CrashFs()>& base, Action&& action, Check&& check) {
  for (int64_t n = 1;; ++n) {
    CrashFs fs = base();
    fs.crash_at(fs.calls() + n);
    error_of([&] { action(fs); });
    const bool completed = !fs.crashed();
    check(fs, completed);
    if (completed || ::testing::Test::HasFailure()) return n;
  }
}

CrashFs disk_with_steps(std::initializer_list<int64_t> steps) {
  CrashFs fs;
  for (const int64_t step : steps) save_padded(fs, kDir, step);
  return fs;
}

using Loss = CrashFs::Loss;

// F25
TEST(CheckpointCrash, KilledAtEveryCall) {
  const int64_t calls = crash_at_every_call(
      [] { return disk_with_steps({9}); }, [](Fs& fs) { save_padded(fs, kDir, 10); },
      [](CrashFs& fs, bool completed) {
        expect_recovery(fs.reboot(Loss::none), completed ? std::set<int64_t>{10} : std::set<int64_t>{9, 10});
      });
  EXPECT_GT(calls, 20);
}

// F26
TEST(CheckpointCrash, PowerLossAtEveryCall) {
  std::map<int64_t, int> outcomes;
  crash_at_every_call([] { return disk_with_steps({9}); }, [](Fs& fs) { save_padded(fs, kDir, 10); },
                      [&](CrashFs& fs, bool completed) {
                        const auto allowed = completed ? std::set<int64_t>{10} : std::set<int64_t>{9, 10};
                        expect_recovery(fs.reboot(Loss::all_unsynced), allowed);
                        for (uint64_t seed = 0; seed < 20; ++seed) {
                          CrashFs next = fs.reboot(Loss::random, seed);
                          ++outcomes[newest_step(next, kDir)];
                          expect_recovery(std::move(next), allowed);
                        }
                      });
  EXPECT_TRUE(outcomes[9] > 0 && outcomes[10] > 0);
}

// F26 with several writers: nothing is published before the slices of all are durable.
TEST(CheckpointCrash, PowerLossAtEveryCallOfFourRanks) {
  std::map<int64_t, int> outcomes;
  const int64_t calls =
      crash_at_every_call([] { return disk_with_steps({9}); }, [](Fs& fs) { save_padded_by_ranks(fs, kDir, 10); },
                          [&](CrashFs& fs, bool completed) {
                            const auto allowed = completed ? std::set<int64_t>{10} : std::set<int64_t>{9, 10};
                            expect_recovery(fs.reboot(Loss::none), allowed);
                            expect_recovery(fs.reboot(Loss::all_unsynced), allowed);
                            for (uint64_t seed = 0; seed < 20; ++seed) {
                              CrashFs next = fs.reboot(Loss::random, seed);
                              ++outcomes[newest_step(next, kDir)];
                              expect_recovery(std::move(next), allowed);
                            }
                          });
  EXPECT_GT(calls, 30);
  EXPECT_TRUE(outcomes[9] > 0 && outcomes[10] > 0);
}

// A step that is saved again, by another recipe: the old one or the new one is there at any time. A file system that
// cannot exchange names has a moment without both.
TEST(CheckpointCrash, PowerLossWhileAStepIsReplaced) {
  for (const bool can_exchange : {true, false}) {
    const auto disk = [&] {
      CrashFs fs = disk_with_steps({9});
      if (!can_exchange) fs.refuse_exchange();
      return fs;
    };
    std::map<int64_t, int> outcomes;
    const auto allowed = can_exchange ? std::set<int64_t>{9} : std::set<int64_t>{-1, 9};
    crash_at_every_call(
        disk, [](Fs& fs) { save_padded(fs, kDir, 9, "r2"); },
        [&](CrashFs& fs, bool completed) {
          for (uint64_t seed = 0; seed < 20; ++seed) {
            CrashFs next = fs.reboot(seed ? Loss::random : Loss::none, seed);
            ++outcomes[newest_step(next, kDir)];
            if (completed) {
              Notes notes;
              EXPECT_EQ(find_newest_valid(next, kDir, Verify::full, notes)->manifest.recipe_hash, "r2");
            }
            expect_recovery(std::move(next), completed ? std::set<int64_t>{9} : allowed);
          }
        });
    EXPECT_EQ(outcomes[-1] > 0, !can_exchange);
  }
}

TEST(CheckpointCrash, PowerLossDuringTheVeryFirstCheckpoint) {
  crash_at_every_call(
      [] { return CrashFs(); }, [](Fs& fs) { save_padded(fs, kDir, 1); },
      [](CrashFs& fs, bool completed) {
        for (uint64_t seed = 0; seed < 10; ++seed)
          expect_recovery(fs.reboot(Loss::random, seed), completed ? std::set<int64_t>{1} : std::set<int64_t>{-1, 1});
      });
}

TEST(CheckpointCrash, PowerLossAfterAKilledWriter) {
  // The second process must not rely on anything that the first, killed one left only in the kernel's memory.
  crash_at_every_call([] { return CrashFs(); }, [](Fs& fs) { save_padded(fs, kDir, 1); },
                      [](CrashFs& fs, bool) {
                        fs.crash_at(std::numeric_limits<int64_t>::max());
                        Notes notes;
                        clean_leftovers(fs, kDir, notes);
                        save_padded(fs, kDir, 2);
                        for (uint64_t seed = 0; seed < 10; ++seed) {
                          CrashFs next = fs.reboot(Loss::random, seed);
                          EXPECT_EQ(newest_step(next, kDir), 2);
                        }
                      });
}

TEST(CheckpointCrash, PowerLossWhileReplacingAStep) {
  for (const char* recipe : {"r1", "r2"})  // kept, replaced
    crash_at_every_call(
        [] {
          return disk_with_steps({9, 10});
        },
        [=](Fs& fs) { save_padded(fs, kDir, 10, recipe); },
        [&](CrashFs& fs, bool completed) {
          for (uint64_t seed = 0; seed < 10; ++seed)
            expect_recovery(fs.reboot(Loss::random, seed),
                            completed ? std::set<int64_t>{10} : std::set<int64_t>{9, 10});
        });
}

// F27
TEST(CheckpointCrash, RetentionKeepsEnoughAtEveryCall) {
  crash_at_every_call(
      [] {
        return disk_with_steps({1, 2, 3, 4, 5});
      },
      [](Fs& fs) {
        Notes notes;
        Retention(2).apply(fs, kDir, notes);
      },
      [](CrashFs& fs, bool completed) {
        for (uint64_t seed = 0; seed < 20; ++seed) {
          CrashFs next = fs.reboot(seed ? Loss::random : Loss::none, seed);
          EXPECT_EQ(newest_step(next, kDir), 5);
          EXPECT_EQ(inspect_checkpoint(next, kDir + "/step-000000004", Verify::full).status, Inspection::Status::valid);
          if (completed) {
            EXPECT_EQ(list_steps(next, kDir), (std::vector<int64_t>{4, 5}));
          }
          expect_recovery(std::move(next), {5});
        }
      });
}

// F28
TEST(CheckpointFault, AnyFailingCallLeavesTheOldOnesAndNoRubbish) {
  for (const int error : {ENOSPC, EDQUOT, EIO}) {
    for (int64_t n = 1;; ++n) {
      CrashFs disk = disk_with_steps({9});
      std::string call;
      FaultFs faulty(disk, [&](std::string_view name, int64_t i) {
        if (i == n) call = name;
        return i == n ? -error : 0;
      });
      Exit exit = Exit::ok;
      const std::string text = error_of([&] { save_padded(faulty, kDir, 10); }, &exit);
      EXPECT_EQ(get_file(disk, kDir + "/step-000000009/state.json"), content(9, kNames[2]) + content(9, kNames[2]));
      if (!text.empty()) {
        EXPECT_EQ(exit, Exit::io_error) << text;
        EXPECT_CONTAINS(text, "/run");
        if (call != "info_at" && call != "open_read" && call != "list") {
          EXPECT_CONTAINS(text, "bytes free");
        }
      } else {
        EXPECT_EQ(newest_step(disk, kDir), 10);
      }
      for (const std::string& name : list_dir(disk, kDir))
        EXPECT_FALSE(name.starts_with('.')) << name << " after " << call << " " << n;
      expect_recovery(disk.reboot(Loss::none), {9, 10});
      // A second try that succeeds is durable, even where it finds the first one's directory in place.
      save_padded(disk, kDir, 10);
      CrashFs after = disk.reboot(Loss::all_unsynced);
      EXPECT_EQ(newest_step(after, kDir), 10);
      if (n > faulty.calls()) {
        EXPECT_EQ(text, "");
        break;
      }
    }
  }
}

TEST(CheckpointFault, DiskThatStaysFullOrDead) {
  for (int64_t n = 1; n < 60; ++n) {
    CrashFs disk = disk_with_steps({9});
    FaultFs full(disk, [&](std::string_view call, int64_t i) {
      return i >= n && (call == "write" || call == "create" || call == "make_dir") ? -ENOSPC : 0;
    });
    error_of([&] { save_padded(full, kDir, 10); });
    for (const std::string& name : list_dir(disk, kDir)) EXPECT_FALSE(name.starts_with('.')) << name;
    FaultFs dead(disk, [&](std::string_view, int64_t i) { return i >= n ? -EIO : 0; });
    error_of([&] { save_padded(dead, kDir, 11); });
    expect_recovery(disk.reboot(Loss::none), {9, 10, 11});
  }
}

TEST(CheckpointFault, ShortWritesAndInterruptsAreInvisible) {
  CrashFs disk;
  std::mt19937_64 rng(5);
  FaultFs nervous(disk, [&](std::string_view call, int64_t) {
    const auto roll = rng() % 4;
    return roll == 0 && call != "close" ? -EINTR : roll == 1 ? FaultFs::kShort : 0;
  });
  for (int64_t step = 1; step <= 5; ++step) {
    save_padded(nervous, kDir, step);
    EXPECT_EQ(newest_step(nervous, kDir), step);
  }
  Notes notes;
  Retention(1).apply(nervous, kDir, notes);
  EXPECT_TRUE(notes.empty());
  EXPECT_EQ(list_dir(disk, kDir), std::vector<std::string>{step_name(5)});
}

// The kernel's own short write and error: a file size limit in the middle of the first file.
TEST(CheckpointFault, RealFileSizeLimit) {
  TempDir run;
  const std::string dir = run / "checkpoints";
  PosixFs fs;
  save_padded(fs, dir, 1);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit { 100'000, 100'000 };
    ::setrlimit(RLIMIT_FSIZE, &limit);
    Exit exit = Exit::ok;
    const std::string text = error_of([&] { save_padded(fs, dir, 2); }, &exit);
    ::_exit(exit == Exit::io_error && text.find("model.safetensors: File too large (") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(list_dir(fs, dir), std::vector<std::string>{step_name(1)});
  EXPECT_EQ(newest_step(fs, dir), 1);
}

// F25 with a real process, real files and SIGKILL.
TEST(CheckpointCrash, RealProcessKilledAtEveryCall) {
  TempDir run;
  const std::string dir = run / "checkpoints";
  PosixFs posix;
  save_padded(posix, dir, 1);
  const auto save = [&](int64_t step, int64_t n) {
    FaultFs fs(posix, [&](std::string_view, int64_t i) {
      if (i == n) ::kill(::getpid(), SIGKILL);
      return 0;
    });
    Notes notes;
    save_padded(fs, dir, step);
    Retention(1).apply(fs, dir, notes);
  };
  EXPECT_GT(kill_at_every_call(dir, save, [&] { return newest_step(posix, dir); }), 20);
}

}  // namespace
}  // namespace lathe::io
