#include "compile/device_spec.h"

#include <gtest/gtest.h>

#include <set>

#include "backend/backend.h"
#include "backend/cuda/cuda_info.h"
#include "base/error.h"
#include "compile/compile.h"
#include "recipe/recipe.h"

namespace lathe {
namespace {

constexpr const char* kGood = "backend = \"opencl\" # kernels\nmemory = \"2GiB\"\nbandwidth = 100\npeak.f32 = 1.5\n";

TEST(Targets, EmbeddedFilesAreComplete) {
  ASSERT_GE(embedded_device_specs().size(), 6u);
  for (const EmbeddedDeviceSpec& e : embedded_device_specs()) {
    const DeviceSpec t = load_device_spec(std::string(e.name));
    EXPECT_FALSE(t.description.empty()) << e.name;
    EXPECT_GT(t.memory, int64_t{1} << 30) << e.name;
    EXPECT_GT(t.transfer, 0) << e.name;
  }
}

TEST(Targets, ErrorsNameFileAndLine) {
  const std::pair<std::string, std::string> cases[] = {
      {"memry = \"1GiB\"", "x.toml:1: unknown key memry; did you mean memory?"},
      {"# c\nmemory = \"1 apple\"", "x.toml:2: memory: expected a size like \"40GiB\", got \"1 apple\""},
      {"memory = 40", "x.toml:1: memory: expected a text in quotes"},
      {"memory = \"40GiB", "x.toml:1: "},
      {"peak.f32 = -1", "x.toml:1: peak.f32: expected a number above 0, got -1"},
      {"peak.f32 = nan", "x.toml:1: peak.f32: expected a number above 0, got nan"},
      {"peak.f32 = ", "x.toml:1: "},
      {"peak.f32 = true", "x.toml:1: peak.f32: expected a number above 0, got true or false"},
      {"peak.f32 = [1]", "x.toml:1: peak.f32: expected a number above 0, got a list"},
      {"peak = 1", "x.toml:1: unknown key peak"},
      {"\"peak.f32\" = 1\npeak.f32 = 2", "x.toml:2: peak.f32 is given twice"},
      {"bandwidth = 9223372036854775807", "x.toml:1: bandwidth: expected a number above 0"},
      {"[[[x]]]", "x.toml:1: expected a key or a table header"},
      {"a = " + std::string(1000, '['), "x.toml:1: expected at most 16 nested brackets"},
      {std::string(1 << 17, '#'), "x.toml:1: expected at most 65536 bytes, got 131072"},
      {"bandwidth = \"fast\"", "x.toml:1: bandwidth: expected a number"},
      {"bandwidth = 1\nbandwidth = 2", "x.toml:2: "},
      {"[table]", "x.toml:1: unknown key table"},
      {"memory = \"1GiB\"", "x.toml: backend is missing"},
      {"capability = 7.0", "x.toml:1: capability: expected a compute capability of 7.5 or newer"},
      {"capability = 8.05", "x.toml:1: capability: expected a compute capability"},
      {"capability = \"sm_80\"", "x.toml:1: capability: expected a number"},
      {"backend = \"cuda\"\nmemory = \"1GiB\"\nbandwidth = 1\npeak.f32 = 1", "x.toml: capability is missing"},
      {std::string(kGood) + "capability = 8.0", "x.toml: capability: means nothing for backend = \"opencl\""},
  };
  for (const auto& [text, message] : cases) {
    try {
      parse_device_spec(text, "x.toml");
      ADD_FAILURE() << text;
    } catch (const UserError& e) {
      EXPECT_NE(std::string(e.what()).find(message), std::string::npos) << e.what();
      EXPECT_EQ(e.exit_code(), Exit::bad_recipe);
    }
  }
  EXPECT_EQ(parse_device_spec(kGood, "x.toml").memory, int64_t{2} << 30);
}

// What TOML allows beside `key = value`: tables, and numbers and texts in all of their forms. Peaks stay in order.
TEST(Targets, ReadAllOfToml) {
  const DeviceSpec t = parse_device_spec(
      "backend = 'cuda'\ndescription = \"A \\\"card\\\" # 1\"\r\ncapability = 8.9\nmemory = \"\"\"8GiB\"\"\"\n"
      "bandwidth = 1_008\n[peak]\ntf32 = 8.26e1\nf32 = 0x10\n",
      "x.toml");
  EXPECT_EQ(t.description, "A \"card\" # 1");
  EXPECT_EQ(t.backend, "cuda");
  EXPECT_EQ(t.capability, 89);
  EXPECT_EQ(t.memory, int64_t{8} << 30);
  EXPECT_EQ(t.bandwidth, 1008e9);
  ASSERT_EQ(t.peaks.size(), 2u);
  EXPECT_EQ(t.peaks[0].type, "tf32");
  EXPECT_EQ(t.peaks[0].flops, 82.6e12);
  EXPECT_EQ(t.peaks[1].type, "f32");
  EXPECT_EQ(t.peaks[1].flops, 16e12);
}

// A batch whose products are bound by arithmetic: what a step may take falls with the peak of its type, and only on
// cards that compute in it.
TEST(Targets, LeastTimeKnowsThePrecision) {
  const auto seconds = [](const std::string& target, const std::string& precision) {
    const Recipe r = load_recipe("mlp", {"data.source=synthetic", "model.hidden=[4096,4096]", "train.batch_size=4096",
                                         "data.train_samples=4096", "train.precision=" + precision});
    CompileOptions o;
    o.spec = load_device_spec(target);
    const Compiled c = compile(r, describe_data(r), o);
    return least_seconds(c.set.programs[c.program("train")], *o.spec);
  };
  const double f32 = seconds("a100-40gb", "f32"), bf16 = seconds("a100-40gb", "bf16");
  EXPECT_LT(bf16, f32 / 4) << "16 times the peak for the products, the same memory for the weights";
  EXPECT_GT(bf16, f32 / 16);
  EXPECT_NEAR(seconds("a100-40gb", "f16") / bf16, 1, 1e-3);
  EXPECT_GT(seconds("t4-16gb", "bf16"), 3 * seconds("t4-16gb", "f16")) << "a T4 has no bf16";
  EXPECT_GT(seconds("mi250", "bf16"), 0.9 * seconds("mi250", "f32")) << "OpenCL kernels widen to f32";
}

// As NVIDIA recommends for cuBLASLt; and the types of their tensor cores.
TEST(Targets, CapabilityDecidesWorkspaceAndTypes) {
  const auto target = [](const char* name) { return target_of_spec(load_device_spec(name)); };
  EXPECT_EQ(target("h100-80gb").library_workspace, int64_t{32} << 20);
  EXPECT_EQ(target("a100-40gb").library_workspace, int64_t{8} << 20);
  EXPECT_EQ(target("rtx4090-24gb").capability, 89);
  EXPECT_EQ(target("mi250").capability, 0);
  const auto kernels = [](const char* name, const std::string& precision) {
    const Recipe r = load_recipe("fashion_mnist", {"data.source=synthetic", "train.precision=" + precision});
    CompileOptions o;
    o.spec = load_device_spec(name);
    const Compiled c = compile(r, describe_data(r), o);
    std::set<std::string> out;
    for (const Launch& l : c.set.programs[c.program("train")].launches) out.emplace(l.candidate.name);
    return out;
  };
  EXPECT_TRUE(kernels("a100-40gb", "bf16").count("cudnn"));
  EXPECT_FALSE(kernels("t4-16gb", "bf16").count("cudnn")) << "a T4 has no bf16";
  EXPECT_TRUE(kernels("t4-16gb", "bf16").count("cuda_direct"));
  EXPECT_TRUE(kernels("t4-16gb", "f16").count("cudnn"));
}

TEST(Targets, AWorkspaceThatIsTooLargeNamesTheBatchThatFits) {
  const Recipe r = load_recipe("gpt_tiny", {"data.path="});
  CompileOptions o;
  o.spec = load_device_spec("h100-80gb");
  o.device_memory = int64_t{32} << 20;
  try {
    compile(r, describe_data(r), o);
    ADD_FAILURE() << "fits";
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), Exit::os_error);
    EXPECT_NE(std::string(e.what()).find("train.batch_size = "), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("workspace of"), std::string::npos) << e.what();
  }
}

// What `lathe selftest --device cuda` takes for a card's peak is what its data sheet says. (An H100's counts its tensor
// cores at a lower clock, hence the tolerance.)
TEST(Targets, PeaksAreThoseThatTheCudaBackendComputes) {
  struct Card {
    const char* target;
    int multiprocessors, clock_khz;
  };
  constexpr Card kCards[] = {{"t4-16gb", 40, 1590000},
                             {"a100-40gb", 108, 1410000},
                             {"a100-80gb", 108, 1410000},
                             {"h100-80gb", 132, 1980000},
                             {"rtx4090-24gb", 128, 2520000}};
  size_t files = 0;
  for (const EmbeddedDeviceSpec& e : embedded_device_specs())
    files += e.text.find("capability") != std::string_view::npos;
  EXPECT_EQ(files, std::size(kCards)) << "a card of the folder is missing in this test";
  for (const Card& card : kCards) {
    const DeviceSpec t = load_device_spec(card.target);
    CudaInfo d;
    d.name = t.description;
    d.major = t.capability / 10;
    d.minor = t.capability % 10;
    d.multiprocessors = card.multiprocessors;
    d.clock_khz = card.clock_khz;
    ASSERT_FALSE(t.peaks.empty());
    for (const DeviceSpecPeak& p : t.peaks) {
      const CudaMath math = p.type == "f32" ? CudaMath::f32 : p.type == "tf32" ? CudaMath::tf32 : CudaMath::f16;
      EXPECT_NEAR(peak_flops(d, math) / p.flops, 1, 0.1) << t.name << " " << p.type;
    }
  }
  // The same generation on professional cards, at full rate; and a Turing card that has no tensor cores.
  CudaInfo d;
  d.major = 8, d.minor = 9;
  d.multiprocessors = 142;
  d.clock_khz = 2520000;
  d.name = "NVIDIA L40S";
  EXPECT_NEAR(peak_flops(d, CudaMath::f16), 366e12, 1e12);
  EXPECT_NEAR(peak_flops(d, CudaMath::tf32), 183e12, 1e12);
  d.major = 7, d.minor = 5;
  d.name = "NVIDIA GeForce GTX 1650";
  EXPECT_EQ(peak_flops(d, CudaMath::f16), 2 * peak_flops(d, CudaMath::f32));
}

TEST(Targets, PlanForACardNamesTheBatchThatFits) {
  const Recipe r = load_recipe("fashion_mnist", {"data.source=synthetic", "train.batch_size=2048"});
  CompileOptions o;
  o.spec = parse_device_spec(kGood, "x.toml");
  o.spec->backend = "cpu";
  const DataSpec data = describe_data(r);
  const Compiled whole = compile(r, data, o);
  EXPECT_EQ(whole.target.peak_flops, 1.5e12);
  o.device_memory = whole.memory().total() / 3;
  try {
    compile(r, data, o);
    FAIL() << "a third of the memory must not be enough";
  } catch (const DeviceError& e) {
    const std::string text = e.what(), key = "train.batch_size = ";
    const size_t at = text.find(key);
    ASSERT_NE(at, text.npos) << text;
    Recipe smaller = r;
    smaller.train.batch_size = std::stoll(text.substr(at + key.size()));
    EXPECT_GT(smaller.train.batch_size, 256) << text;
    EXPECT_NO_THROW(compile(smaller, data, o)) << text;
  }
}

}  // namespace
}  // namespace lathe
