#include "backend/kernels/binary_cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>

namespace lathe {
namespace {

class CacheFiles : public ::testing::Test {
 protected:
  CacheFiles()
      : folder_((std::filesystem::temp_directory_path() / fmt::format("lathe-cache-files-{}", getpid())).string()) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~CacheFiles() override { std::filesystem::remove_all(folder_); }

  void put(const std::string& name, int hours_ago = 0) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << "x";
    std::filesystem::last_write_time(path,
                                     std::filesystem::file_time_type::clock::now() - std::chrono::hours(hours_ago));
  }
  std::set<std::string> names() const {
    std::set<std::string> out;
    for (const auto& e : std::filesystem::directory_iterator(folder_)) out.insert(e.path().filename().string());
    return out;
  }

  std::string folder_;
};

int process_that_is_gone() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  return child;
}

TEST_F(CacheFiles, OnlyThoseOfLivingWritersStay) {
  char host[64] = "";
  gethostname(host, sizeof host - 1);
  const std::string dead = fmt::format("{}.{}.3.tmp", host, process_that_is_gone()),
                    alive = fmt::format("{}.{}.3.tmp", host, getpid()),
                    elsewhere = fmt::format("another.{}.{}.3.tmp", std::string(host) + "x", process_that_is_gone());
  const std::set<std::string> stay{
      "a.clbin", "a.clbin." + alive, "b.narrow.tiles." + alive, "a.clbin." + elsewhere, "of-the-user." + dead,
      "old.tmp"};
  for (const std::string& name : stay) put(name, name == "old.tmp" || name == "a.clbin" ? 1000 : 0);
  for (const std::string& name : {"a.clbin." + dead, "b.narrow.tiles." + dead}) put(name);
  for (const std::string& name : {"c.clbin." + elsewhere, "c.clbin." + alive, std::string("c.wide.tiles.17.tmp")})
    put(name, 25);
  remove_abandoned_files(folder_);
  EXPECT_EQ(names(), stay);
  remove_abandoned_files(folder_ + "/none");
}

// The system ends a process that writes more than it may, in the middle of the file.
TEST_F(CacheFiles, TheNextWriterSweeps) {
  const BinaryCache cache(folder_);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit none{0, 0}, little{1000, 1000};
    setrlimit(RLIMIT_CORE, &none);
    setrlimit(RLIMIT_FSIZE, &little);
    cache.store("a", std::vector<unsigned char>(100000));
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  ASSERT_EQ(names().size(), 1u);
  ASSERT_TRUE(names().begin()->ends_with(".tmp")) << *names().begin();
  EXPECT_FALSE(cache.load("a"));
  cache.store("b", {1, 2, 3});
  EXPECT_EQ(names(), std::set<std::string>{"b.clbin"});
}

}  // namespace
}  // namespace lathe
