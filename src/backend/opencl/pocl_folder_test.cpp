#include "backend/opencl/pocl_folder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace lathe {
namespace {

namespace fs = std::filesystem;

class PoclFolderTest : public ::testing::Test {
 protected:
  PoclFolderTest() : root_((fs::temp_directory_path() / fmt::format("lathe-pocl-test-{}", getpid())).string()) {
    fs::remove_all(root_);
    fs::create_directories(root_);
    if (const char* v = std::getenv("POCL_CACHE_DIR")) of_user_ = v;
    unsetenv("POCL_CACHE_DIR");
  }
  ~PoclFolderTest() override {
    fs::remove_all(root_);
    if (!of_user_.empty()) setenv("POCL_CACHE_DIR", of_user_.c_str(), 1);
  }
  static void write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path) << text;
  }
  static std::string read(const std::string& path) {
    std::ifstream f(path);
    return {std::istreambuf_iterator<char>(f), {}};
  }
  std::string root_, of_user_;
};

TEST_F(PoclFolderTest, FilesPackAndUnpack) {
  const std::string from = root_ + "/from", to = root_ + "/to";
  write(from + "/AB/C/program.bc", std::string("bytes\0more", 10));
  write(from + "/AB/C/kernel/1-1-1/kernel.so", "");
  const std::set<std::string> names{"AB/C/program.bc", "AB/C/kernel/1-1-1/kernel.so"};
  const auto bytes = pack_files(from, names);
  std::set<std::string> seen;
  ASSERT_TRUE(unpack_files(to, bytes, &seen));
  EXPECT_EQ(seen, names);
  EXPECT_EQ(read(to + "/AB/C/program.bc"), std::string("bytes\0more", 10));
  EXPECT_TRUE(fs::exists(to + "/AB/C/kernel/1-1-1/kernel.so"));
  // Every part of it but the whole, and the one that ends between two files.
  for (size_t size = 1; size < bytes.size(); ++size) {
    std::set<std::string> part;
    if (unpack_files(to, {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)}, &part)) {
      EXPECT_EQ(part.size(), 1u) << size;
    }
  }
  EXPECT_TRUE(pack_files(from, {"AB/C/none"}).empty());
}

TEST_F(PoclFolderTest, NamesDoNotLeadOutside) {
  write(root_ + "/outside", "x");
  fs::create_directories(root_ + "/from");
  const auto bytes = pack_files(root_ + "/from", {"../outside"});
  ASSERT_FALSE(bytes.empty());
  std::set<std::string> seen;
  EXPECT_FALSE(unpack_files(root_ + "/to", bytes, &seen));
}

TEST_F(PoclFolderTest, ProgramsComeBackWholeOrNotAtAll) {
  const BinaryCache cache(root_ + "/cache");
  int compiled = 0;
  // What PoCL does: writes what it does not find.
  const auto run = [&] {
    PoclFolder folder(root_ + "/pocl");
    const std::string program = folder.path() + "/AB/CD/program.bc", kernel = folder.path() + "/AB/CD/k/1-1-1/k.so";
    const auto find = [&](const std::string& path, const std::string& text) {
      if (!fs::exists(path)) {
        ++compiled;
        write(path, text);
      }
      EXPECT_EQ(read(path), text);
    };
    folder.build(cache, "key", [&] { find(program, "program"); });
    find(kernel, "kernel");
    folder.keep(cache, "key");
  };
  run();
  EXPECT_EQ(compiled, 2);
  run();
  EXPECT_EQ(compiled, 2);
  for (const uintmax_t size : {uintmax_t{0}, uintmax_t{30}, fs::file_size(cache.path("key")) - 1}) {
    fs::resize_file(cache.path("key"), size);
    compiled = 0;
    run();
    EXPECT_EQ(compiled, 2) << size;
    run();
    EXPECT_EQ(compiled, 2) << size;
  }
  // Whole by its hash, but nothing of PoCL's.
  cache.store("key", std::vector<unsigned char>(100, 1));
  run();
  EXPECT_EQ(compiled, 4);
  EXPECT_TRUE(fs::is_empty(root_ + "/pocl")) << "folders end with their owners";
}

TEST_F(PoclFolderTest, ThoseOfKilledProcessesGo) {
  const std::string parent = root_ + "/pocl";
  const PoclFolder living(parent);
  const pid_t child = fork();
  if (child == 0) {
    const PoclFolder killed(parent);
    write(killed.path() + "/AB/CD/program.bc", "program");
    _exit(0);  // without destructors
  }
  ASSERT_GT(child, 0);
  waitpid(child, nullptr, 0);
  const auto count = [&] { return std::distance(fs::directory_iterator(parent), fs::directory_iterator()); };
  EXPECT_EQ(count(), 4);
  const PoclFolder next(parent);
  EXPECT_EQ(count(), 4) << "that of the killed one gone, that of the new one here";
  EXPECT_TRUE(fs::exists(living.path()));
  EXPECT_NE(next.path(), living.path());
}

TEST_F(PoclFolderTest, LeavesPoclAloneWhereItMust) {
  EXPECT_EQ(PoclFolder("").path(), "");
  EXPECT_EQ(PoclFolder("/proc/nowhere").path(), "");
  setenv("POCL_CACHE_DIR", "/somewhere", 1);
  EXPECT_EQ(PoclFolder(root_ + "/pocl").path(), "");
  unsetenv("POCL_CACHE_DIR");
  EXPECT_NE(PoclFolder(root_ + "/pocl").path(), "");
}

}  // namespace
}  // namespace lathe
