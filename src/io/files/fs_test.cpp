#include "io/files/fs.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "io/files/crash_fs.h"
#include "io/files/fault_fs.h"
#include "io/files/file_writer.h"
#include "io/hash.h"
#include "io/test_util.h"

namespace lathe::io {
namespace {

void save(Fs& fs, const std::string& path, std::string_view text, bool sync = true) {
  File file = File::create(fs, path);
  file.write(bytes_of(text));
  if (sync) file.sync();
  file.close();
}

TEST(Hash, MatchesPublishedVectors) {
  // Known answers of XXH3-128 (xxhsum -H2).
  EXPECT_EQ(hash_bytes({}), "99aa06d3014798d86001c324468d497f");
  Hasher pieces;
  const std::string text(3'000'000, 'q');
  for (size_t at = 0; at < text.size(); at += 77'777)
    pieces.update(bytes_of(std::string_view(text).substr(at, 77'777)));
  EXPECT_EQ(pieces.hex(), hash_bytes(bytes_of(text)));
  TempDir dir;
  PosixFs fs;
  put_file(dir / "t", text);
  EXPECT_EQ(digest_file(fs, dir / "t"), (FileDigest{.size = 3'000'000, .xxh3 = pieces.hex()}));
}

TEST(PosixFs, FilesAndDirectories) {
  PosixFs fs;
  TempDir dir;
  make_dirs(fs, dir / "a/b/c");
  save(fs, dir / "a/b/c/f", "hello");
  EXPECT_EQ(get_file(fs, dir / "a/b/c/f"), "hello");
  EXPECT_EQ(info_at(fs, dir / "a/b/c/f")->size, 5);
  EXPECT_FALSE(info_at(fs, dir / "a/b/c/g"));
  ASSERT_EQ(::symlink("/etc", (dir / "a/link").c_str()), 0);
  EXPECT_EQ(info_at(fs, dir / "a/link")->kind, FileInfo::Kind::symlink);
  EXPECT_EQ(list_dir(fs, dir / "a"), (std::vector<std::string>{"b", "link"}));
  EXPECT_GT(fs.free_bytes(dir.path()), 0);
  sync_dir(fs, dir.path());
  rename_path(fs, dir / "a/b/c/f", dir / "a/f");
  remove_tree(fs, dir / "a");
  EXPECT_FALSE(info_at(fs, dir / "a"));
  EXPECT_TRUE(std::filesystem::exists("/etc"));  // the link went, not its target
}

TEST(PosixFs, ErrorsSayWhatWhereAndHowMuchIsFree) {
  PosixFs fs;
  TempDir dir;
  save(fs, dir / "f", "x");
  Exit exit = Exit::ok;
  const std::string text = error_of([&] { File::create(fs, dir / "f"); }, &exit);
  EXPECT_EQ(exit, Exit::cannot_create);
  EXPECT_CONTAINS(text, dir / "f");
  EXPECT_CONTAINS(text, "File exists");
  EXPECT_EQ(text.find("free"), std::string::npos) << text;  // room is not what was missing
  FaultFs full(fs, [](std::string_view, int64_t) { return -ENOSPC; });
  EXPECT_CONTAINS(error_of([&] { make_dir(full, dir / "g"); }), "bytes free");
  EXPECT_CONTAINS(error_of([&] { rename_path(fs, dir / "none", dir / "g"); }), "No such file");
  EXPECT_CONTAINS(error_of([&] { make_dir(fs, dir / "f/sub"); }), "Not a directory");
  EXPECT_CONTAINS(error_of([&] { list_dir(fs, dir / "none"); }), "No such file");
  EXPECT_CONTAINS(error_of([&] { make_dir(fs, dir / "f"); }), "File exists");
  // A real device that is always full.
  const int64_t fd = ::open("/dev/full", O_WRONLY);
  if (fd >= 0) {
    EXPECT_EQ(fs.write(static_cast<int>(fd), bytes_of("x")), -ENOSPC);
    fs.close(static_cast<int>(fd));
  }
}

TEST(File, FinishesShortTransfersAndRetriesInterrupts) {
  TempDir dir;
  PosixFs posix;
  const std::string text(1000, 'z');
  FaultFs shorts(posix, [](std::string_view, int64_t) { return FaultFs::kShort; });
  save(shorts, dir / "f", text);
  EXPECT_EQ(get_file(shorts, dir / "f"), text);
  FaultFs interrupts(posix, [](std::string_view, int64_t n) { return n % 2 ? -EINTR : 0; });
  {
    FileWriter out(interrupts, dir / "g");
    out.write(text);
    out.finish();
  }
  EXPECT_EQ(get_file(interrupts, dir / "g"), text);
  FaultFs stuck(posix, [](std::string_view call, int64_t) { return call == "write" ? -ENOSPC : 0; });
  Exit exit = Exit::ok;
  EXPECT_CONTAINS(error_of([&] { save(stuck, dir / "h", text); }, &exit), "No space left");
  EXPECT_EQ(exit, Exit::io_error);
}

TEST(CrashFs, KeepsWhatWasSyncedAndMayLoseTheRest) {
  bool unsynced_name_lost = false, unsynced_bytes_lost = false, kept = false;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    CrashFs fs;
    make_dirs(fs, "/d");
    save(fs, "/d/safe", "12345678");
    save(fs, "/d/bytes", "12345678", /*sync=*/false);
    sync_dir(fs, "/d");
    save(fs, "/d/name", "12345678");
    CrashFs next = fs.reboot(CrashFs::Loss::random, seed);
    EXPECT_EQ(get_file(next, "/d/safe"), "12345678");
    unsynced_bytes_lost |= get_file(next, "/d/bytes") != "12345678";
    unsynced_name_lost |= !info_at(next, "/d/name");
    kept |= info_at(next, "/d/name") && get_file(next, "/d/bytes") == "12345678";
  }
  EXPECT_TRUE(unsynced_name_lost && unsynced_bytes_lost && kept);

  CrashFs fs;
  make_dirs(fs, "/d");
  save(fs, "/d/x", "1", false);
  EXPECT_EQ(get_file(*std::make_unique<CrashFs>(fs.reboot(CrashFs::Loss::none)), "/d/x"), "1");
  CrashFs cold = fs.reboot(CrashFs::Loss::all_unsynced);
  EXPECT_TRUE(info_at(cold, "/d"));
  EXPECT_FALSE(info_at(cold, "/d/x"));
  fs.crash_at(fs.calls() + 1);
  EXPECT_CONTAINS(error_of([&] { make_dir(fs, "/e"); }), "Input/output error");
  EXPECT_TRUE(fs.crashed());
}

TEST(Paths, PlainNames) {
  for (const char* good : {"model.safetensors", "state.json", "rank-3_of_4"}) EXPECT_TRUE(is_plain_name(good)) << good;
  for (const char* bad : {"", ".", "..", ".hidden", "a/b", "../x", "a b", "\n"})
    EXPECT_FALSE(is_plain_name(bad)) << bad;
  EXPECT_FALSE(is_plain_name(std::string("a\0b", 3)));
  EXPECT_EQ(parent_path("/a/b/"), "/a");
  EXPECT_EQ(parent_path("/a"), "/");
  EXPECT_EQ(parent_path("a"), ".");
  EXPECT_EQ(join_path("a/", "b"), "a/b");
}

}  // namespace
}  // namespace lathe::io
