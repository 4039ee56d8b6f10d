#include "backend/backend.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lathe {
namespace {

TEST(Backends, EveryOneHasAName) {
  EXPECT_TRUE(is_device_name("auto"));
  for (const Backend* b : backends()) {
    const std::string name(b->name());
    EXPECT_EQ(&find_backend(name), b);
    EXPECT_TRUE(is_device_name(name)) << name;
    // What lists the devices says how each is called: by its number where there may be several.
    for (const DeviceInfo& d : b->devices()) EXPECT_TRUE(is_device_name(d.name)) << d.name;
  }
  EXPECT_THROW(find_backend("tpu"), UserError);
}

TEST(Backends, NumbersAreForThoseThatMayHaveSeveral) {
  for (const char* good : {"opencl:0", "opencl:12", "cuda:999"}) EXPECT_TRUE(is_device_name(good)) << good;
  for (const char* bad : {"", ":", ":0", "cpu:0", "ref:0", "auto:0", "opencl:", "opencl:x", "opencl:-1", "opencl:1000",
                          "opencl:0 ", "OpenCL", "tpu", "tpu:0"})
    EXPECT_FALSE(is_device_name(bad)) << bad;
}

TEST(Backends, CandidatesKeepTheirOrder) {
  const auto row = [](std::string_view op, std::string_view name) {
    return KernelTable::Row{op, {name, nullptr, nullptr, nullptr}};
  };
  const KernelTable table({row("b", "b1"), row("a", "a1"), row("b", "b2"), row("c", "c1"), row("b", "b3")});
  std::vector<std::string_view> names;
  for (const KernelTable::Row& r : table.candidates("b")) names.push_back(r.candidate.name);
  EXPECT_EQ(names, (std::vector<std::string_view>{"b1", "b2", "b3"}));
  EXPECT_EQ(table.candidates("a").size(), 1u);
  EXPECT_TRUE(table.candidates("aa").empty());
  EXPECT_TRUE(table.candidates("").empty());
  EXPECT_TRUE(table.candidates("d").empty());
  EXPECT_EQ(table.ops(), (std::vector<std::string>{"a", "b", "c"}));
}

}  // namespace
}  // namespace lathe
