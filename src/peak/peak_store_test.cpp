#include "peak/peak_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "backend/kernels/binary_cache.h"

namespace lathe {
namespace {

namespace fs = std::filesystem;

class PeakStore : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("lathe_peaks_" + std::to_string(getpid()));
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  Peak keep(double flops, double bytes, const std::string& machine = "m") const {
    return keep_best_peak(folder_.string(), machine, {flops, bytes});
  }
  fs::path folder_;
};

TEST_F(PeakStore, TheBestOfEachStays) {
  Peak p = keep(100, 5);
  EXPECT_EQ(p.flops_per_second, 100);
  EXPECT_EQ(p.bytes_per_second, 5);
  p = keep(60, 7);  // a busy moment, but for the memory
  EXPECT_EQ(p.flops_per_second, 100);
  EXPECT_EQ(p.bytes_per_second, 7);
  EXPECT_EQ(keep(1, 1, "another machine").flops_per_second, 1);
  p = keep(101.25, 1);
  EXPECT_EQ(p.flops_per_second, 101.25);
  EXPECT_EQ(p.bytes_per_second, 7);
}

TEST_F(PeakStore, DamagedFilesAreIgnoredAndReplaced) {
  keep(100, 5);
  const fs::path file = fs::directory_iterator(folder_)->path();
  const std::string good = [&] {
    std::ifstream in(file);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }();
  std::string digit = good;
  digit[digit.find("100")] = '9';
  for (const std::string& text : {std::string(), good.substr(0, good.size() / 2), digit, good + "x",
                                  std::string(100000, '1'), std::string("lathe peak 1\nm\nnan inf\n")}) {
    std::ofstream(file, std::ios::trunc) << text;
    EXPECT_EQ(keep(40, 4).flops_per_second, 40) << text.substr(0, 80);
    EXPECT_EQ(keep(30, 3).flops_per_second, 40) << "rewritten";
  }
  std::ofstream(file, std::ios::trunc) << good;
  EXPECT_EQ(keep(40, 4).flops_per_second, 100);
}

TEST_F(PeakStore, NoFolderKeepsNothing) {
  EXPECT_EQ(keep_best_peak("", "m", {3, 4}).flops_per_second, 3);
  EXPECT_EQ(keep_best_peak("/proc/nothing", "m", {3, 4}).flops_per_second, 3);
}

TEST_F(PeakStore, ManyWritersLeaveOneWholeFile) {
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 1; i <= 50; ++i) EXPECT_GE(keep(100 * t + i, i).flops_per_second, 100 * t + i);
    });
  threads.clear();
  EXPECT_GE(keep(1, 1).flops_per_second, 50);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder_)) files += entry.path().extension() == ".peak";
  EXPECT_EQ(files, static_cast<int>(std::distance(fs::directory_iterator(folder_), {})));
  EXPECT_EQ(files, 1);
}

TEST_F(PeakStore, AMachineIsItsModelAndThreads) {
  const Backend& cpu = find_backend("cpu");
  EXPECT_NE(peak_machine(cpu, {0, 1}), peak_machine(cpu, {0, 2}));
  EXPECT_NE(peak_machine(cpu, {0, 1}), peak_machine(find_backend("ref"), {0, 1}));
}

}  // namespace
}  // namespace lathe
