#include "device_training.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "process.h"

namespace lathe::test {

std::vector<double> losses(const std::string& run) {
  std::vector<double> out;
  std::istringstream lines(read_file(run + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto j = nlohmann::json::parse(line);
    if (j.contains("loss")) out.push_back(j["loss"]);
  }
  return out;
}

void expect_resume_keeps_bits(const std::string& device, const std::vector<std::string>& env) {
  const TempDir dir;
  const auto train = [&](const std::string& out, int steps) {
    std::vector<std::string> args{"train", "mlp", "--device", device, "--quiet", "--resume", "--out", dir.path(out)};
    for (const std::string& s : {std::string("data.source=synthetic"), std::string("data.train_samples=100"),
                                 std::string("train.batch_size=16"), std::string("train.accumulate=2"),
                                 std::string("model.hidden=[32]"), "train.steps=" + std::to_string(steps)}) {
      args.push_back("--set");
      args.push_back(s);
    }
    const Outcome r = run_lathe(args, env);
    ASSERT_EQ(r.code, 0) << r.err;
  };
  train("whole", 8);
  train("parts", 5);
  train("parts", 8);
  const std::string whole = read_file(newest_checkpoint(dir.path("whole")) + "/model.safetensors");
  EXPECT_FALSE(whole.empty());
  EXPECT_TRUE(whole == read_file(newest_checkpoint(dir.path("parts")) + "/model.safetensors"));
}

}  // namespace lathe::test
