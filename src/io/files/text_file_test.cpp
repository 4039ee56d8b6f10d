#include "io/files/text_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <thread>

#include "io/files/fault_fs.h"
#include "io/files/fs.h"
#include "io/test_util.h"

namespace lathe::io {
namespace {

std::vector<std::string> names_in(const TempDir& dir) {
  PosixFs fs;
  return list_dir(fs, dir.path());
}

TEST(TextFile, IsReplacedAsAWhole) {
  const TempDir dir;
  put_file(dir / "a.tmp", "the user's own");
  replace_file(dir / "a", "one");
  replace_file(dir / "a", "two");
  EXPECT_EQ(read_file(dir / "a", 3), "two");
  EXPECT_EQ(get_file(dir / "a.tmp"), "the user's own");
  EXPECT_EQ(names_in(dir), (std::vector<std::string>{"a", "a.tmp"}));
  EXPECT_CONTAINS(error_of([&] { read_file(dir / "a", 2); }), "at most 2 bytes, got 3");
}

TEST(TextFile, OfALinkTheFileThatItLeadsToIsReplaced) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "there");
  put_file(dir / "there/file", "old");
  std::filesystem::create_symlink("there/file", dir / "near");
  std::filesystem::create_symlink(dir / "near", dir / "far");
  replace_file(dir / "far", "new");
  EXPECT_EQ(get_file(dir / "there/file"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(dir / "near"));
  EXPECT_TRUE(std::filesystem::is_symlink(dir / "far"));
  std::filesystem::create_symlink("there/none", dir / "dangling");
  replace_file(dir / "dangling", "made");
  EXPECT_EQ(get_file(dir / "there/none"), "made");
  std::filesystem::create_symlink("loop", dir / "loop");
  EXPECT_NE(error_of([&] { replace_file(dir / "loop", "x"); }), "");
  EXPECT_EQ(names_in(dir), (std::vector<std::string>{"dangling", "far", "loop", "near", "there"}));
}

TEST(TextFile, PipesAreWrittenTo) {
  const TempDir dir;
  const std::string fifo = dir / "fifo", text(200000, 'x');
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] { got = get_file(fifo); });
  replace_file(fifo, text);
  reader.join();
  EXPECT_TRUE(got == text) << got.size();
  EXPECT_TRUE(std::filesystem::is_fifo(fifo));
  // An open pipe that has no name but that of its descriptor.
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::filesystem::create_symlink(fmt::format("/proc/self/fd/{}", ends[1]), dir / "out");
  replace_file(dir / "out", "through");
  char bytes[8] = {};
  EXPECT_EQ(::read(ends[0], bytes, 7), 7);
  EXPECT_STREQ(bytes, "through");
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_TRUE(std::filesystem::is_symlink(dir / "out"));
  EXPECT_EQ(names_in(dir), (std::vector<std::string>{"fifo", "out"}));
}

TEST(TextFile, DirectoriesAreRefused) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "folder");
  std::filesystem::create_symlink("folder", dir / "link");
  for (const char* name : {"folder", "link"}) {
    Exit code{};
    EXPECT_CONTAINS(error_of([&] { replace_file(dir / name, "x"); }, &code), "got a directory");
    EXPECT_EQ(code, Exit::cannot_create);
  }
  EXPECT_EQ(names_in(dir), (std::vector<std::string>{"folder", "link"}));
}

TEST(TextFile, ErrorsLeaveTheOldTextAndNothingElse) {
  for (const char* failing : {"create", "write", "sync", "rename"}) {
    const TempDir dir;
    put_file(dir / "a", "old");
    PosixFs posix;
    FaultFs fs(posix, [&](std::string_view call, int64_t) { return call == failing ? -ENOSPC : 0; });
    const std::string error = error_of([&] { replace_text(fs, dir / "a", "new"); });
    EXPECT_CONTAINS(error, "No space left");
    EXPECT_CONTAINS(error, dir / "a");
    EXPECT_EQ(error.find(".tmp"), std::string::npos) << error;
    EXPECT_EQ(get_file(dir / "a"), "old");
    EXPECT_EQ(names_in(dir), std::vector<std::string>{"a"}) << failing;
  }
}

TEST(TextFile, AMissingFolderIsNamed) {
  const TempDir dir;
  Exit code{};
  const std::string error = error_of([&] { replace_file(dir / "none/a", "x"); }, &code);
  EXPECT_EQ(error, "cannot create " + (dir / "none/a") + ": there is no folder " + (dir / "none"));
  EXPECT_EQ(code, Exit::cannot_create);
  EXPECT_TRUE(names_in(dir).empty());
}

TEST(Fs, NewDirectoriesAreNobodyElses) {
  const TempDir dir;
  PosixFs fs;
  EXPECT_EQ(make_new_dir(fs, dir / "runs/a"), dir / "runs/a");
  EXPECT_EQ(make_new_dir(fs, dir / "runs/a"), dir / "runs/a-2");
  put_file(dir / "runs/a-3", "");
  EXPECT_EQ(make_new_dir(fs, dir / "runs/a"), dir / "runs/a-4");
  EXPECT_CONTAINS(error_of([&] { make_new_dir(fs, dir / "runs/a-3/x"); }), "a-3");
}

}  // namespace
}  // namespace lathe::io
