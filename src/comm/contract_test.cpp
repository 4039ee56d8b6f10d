#include "comm/contract_test.h"

#include <gtest/gtest.h>

#include "comm/threads.h"

namespace lathe::comm::contract {
namespace {

TEST(Contract, RanksInThreads) {
  for (const Case& c : kCases)
    for (const int ranks : {1, 2, 3, 4, 5, 8}) {
      if (c.error && ranks == 1) continue;
      ThreadOptions options;
      options.timeout = c.timeout;
      const auto groups = thread_groups(ranks, options);
      for (const std::string& e : errors_of(c, groups)) {
        if (c.error)
          EXPECT_NE(e.find(c.error), std::string::npos) << c.name << " on " << ranks << " ranks: " << e;
        else
          EXPECT_EQ(e, "") << c.name << " on " << ranks << " ranks";
      }
    }
}

}  // namespace
}  // namespace lathe::comm::contract
