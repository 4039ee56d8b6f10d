// What every device must do alike when it trains: used by the tests of each device that has memory of its own.
#pragma once

#include <string>
#include <vector>

namespace lathe::test {

std::vector<double> losses(const std::string& run);  // of the steps in metrics.jsonl

// Trains with accumulation in one piece and in two with a resume between: the weights must be the same bytes.
void expect_resume_keeps_bits(const std::string& device, const std::vector<std::string>& env = {});

}  // namespace lathe::test
