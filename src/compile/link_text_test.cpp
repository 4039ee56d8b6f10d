#include "compile/link_text.h"

#include <gtest/gtest.h>

namespace lathe {
namespace {

TEST(LinkText, ForPeople) {
  EXPECT_EQ(link_text({35.2e-6, 4.23e9}), "35 us, 4.2 GB/s");
  EXPECT_EQ(link_text({1.5e-6, 12.5e9}), "1.5 us, 12 GB/s");
  EXPECT_EQ(link_text({1.2e-3, 125e6}), "1.2 ms, 125 MB/s");
}

TEST(LinkText, IsParsedInEitherOrder) {
  for (const char* text : {"50us,1Gbit/s", "1Gbit/s,50us", "50 us, 1 Gbit/s", "0.05ms,125MB/s", "50000ns,0.125GB/s"}) {
    const auto link = parse_link(text);
    ASSERT_TRUE(link) << text;
    EXPECT_NEAR(link->latency, 50e-6, 1e-12) << text;
    EXPECT_NEAR(link->bandwidth, 125e6, 1e-3) << text;
  }
  EXPECT_EQ(parse_link("0us,100kbit/s")->latency, 0);
  EXPECT_NEAR(parse_link("0us,100kbit/s")->bandwidth, 12500, 1e-6);
}

TEST(LinkText, NothingElseIs) {
  for (const char* text : {"",
                           ",",
                           "50us",
                           "1Gbit/s",
                           "50us,",
                           ",1Gbit/s",
                           "50us,50us",
                           "1Gbit/s,1Gbit/s",
                           "50,1Gbit/s",
                           "50us,1",
                           "50us,0Gbit/s",
                           "-1us,1Gbit/s",
                           "50us,-1Gbit/s",
                           "1e3us,1Gbit/s",
                           "nanus,1Gbit/s",
                           "50us,infGB/s",
                           "50us,1gbit/s",
                           "50us,1Gb/s",
                           "50us,1GiB/s",
                           "50us,1Gbit/s,",
                           "50us;1Gbit/s",
                           " 50us,1Gbit/s",
                           "50us,1Gbit/s ",
                           "50us,  1Gbit/s",
                           "5s,1Gbit/s"})
    EXPECT_FALSE(parse_link(text)) << text;
}

}  // namespace
}  // namespace lathe
