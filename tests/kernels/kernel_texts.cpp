// kernel_texts FILE.cu FILE.json [recipes]: writes the wide (GPU) form of every kernel in the common dialect, and what
// NVRTC is given with it. Needs no device. tests/kernels/nvrtc.py compiles the result.
//
// Texts come from two sides. Those of the opencl backend: every sample of every op in every float type, the recipes and
// the benchmarks' workloads. Those of the cuda backend: the recipes and workloads in f32, bf16 and f16, bound to a
// device as in a run, with its libraries, without them, with a cuBLASLt that offers no epilogue, and with libraries
// that have nothing to offer: what the library of kernels was asked to compile then. Some texts also for a grid laid
// along x. With "recipes", only those of the recipes that selftest has. It fails where a recipe contributes no kernel;
// data need not be on the machine.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_grid.h"
#include "backend/cuda/cuda_kernels.h"
#include "backend/kernels/node_calls.h"
#include "backend/opencl/opencl_kernels.h"
#include "bench/bench_step.h"
#include "compile/compile.h"
#include "ops/registry.h"
#include "ops/sample.h"
#include "passes/techniques/gate.h"
#include "passes/techniques/loss_scale.h"
#include "plan/plan.h"
#include "selftest/selftest.h"
#include "sim.h"

namespace lathe {
namespace {

constexpr const char* kArchitectures[] = {"sm_75", "sm_80", "sm_90", "sm_100"};

class Texts {
 public:
  void add(const std::string& source, const std::string& kernel, const std::string& user) {
    Text& t = texts_[source];
    if (t.users.empty()) order_.push_back(source);
    t.name = kernel;
    t.users.insert(user);
    ++uses_[user];
  }
  size_t size() const { return order_.size(); }
  int64_t uses(const std::string& user) const { return uses_.contains(user) ? uses_.at(user) : 0; }

  void write(const char* source, const char* list) const {
    std::ofstream cu(source);
    cu << kernel_text::dialect;
    nlohmann::ordered_json j;
    for (const char* arch : kArchitectures) j["options"][arch] = nvrtc_options(arch);
    for (const std::string& text : order_) {
      cu << "\n" << text;
      const Text& t = texts_.at(text);
      j["kernels"].push_back({{"name", t.name}, {"users", t.users}});
    }
    std::ofstream(list) << j.dump(1) << "\n";
  }

 private:
  struct Text {
    std::string name;
    std::set<std::string> users;
  };
  std::map<std::string, Text> texts_;
  std::vector<std::string> order_;
  std::map<std::string, int64_t> uses_;  // by user
};

// The data of recipes that must be fetched or installed first, as describe_data describes it where they are.
struct FetchedData {
  std::string_view recipe;
  DataSpec spec;
};
const TensorType kLabel{DType::i32, {}};
const DataSpec kFashion{{DType::u8, {28, 28, 1}}, 10, 60000, 10000, 0, kLabel};
const FetchedData kFetchedData[] = {
    {"fashion_efficientnet", kFashion},
    {"fashion_mobilenet", kFashion},
    {"fashion_mnist", kFashion},
    {"fashion_resnet", kFashion},
    {"fashion_vit", kFashion},
    {"clipart_denoise", {{DType::u8, {64, 64, 3}}, 1, 3000, 600, 0, {DType::u8, {64, 64, 3}}}},
    {"clipart_unet", {{DType::u8, {64, 64, 3}}, 2, 3000, 600, 0, {DType::u8, {64, 64}}}},
    {"devices_lstm", {{DType::f32, {24, 4, 1}}, 7, 8926, 7711, 0, kLabel}},
    {"engine_bert", {{DType::f32, {50, 10, 1}}, 2, 3601, 1320, 0, kLabel}},
    {"diamonds", {{DType::f32, {1, 26, 1}}, 1, 43152, 10788, 0, {DType::f32, {1}}}},
    {"gpt_tiny", {{DType::i32, {128}}, 256, 35559, 3951, 0, {DType::i32, {128}}}},
    {"shakespeare", {{DType::i32, {128}}, 128, 35559, 3951, 0, {DType::i32, {128}}}},
};

// With or without the data on this machine; where they are, the table is compared with them.
DataSpec data_of(std::string_view recipe, const Recipe& r) {
  const auto* listed = std::ranges::find(kFetchedData, recipe, &FetchedData::recipe);
  DataSpec found;
  try {
    found = describe_data(r);
  } catch (const UserError& e) {
    if (e.exit_code() != Exit::missing_input) throw;
    if (listed == std::end(kFetchedData))
      throw DeviceError(fmt::format("recipe {}: its data are not here and not in kFetchedData: {}", recipe, e.what()));
    return listed->spec;
  }
  if (listed == std::end(kFetchedData)) return found;
  const auto text = [](const DataSpec& d) {
    return fmt::format("{} -> {} of {}, {} + {} samples", to_string(d.sample), to_string(d.label), d.classes, d.train,
                       d.test);
  };
  if (text(found) != text(listed->spec))
    throw DeviceError(
        fmt::format("recipe {}: kFetchedData has {}, the data are {}", recipe, text(listed->spec), text(found)));
  return found;
}

// Model families that neither a recipe nor a workload has.
struct FamilyRecipe {
  const char* name;
  const char* base;
  std::vector<std::string> sets;
};
const FamilyRecipe kFamilyRecipes[] = {
    {"mobilenetv2", "mlp", {"model.family=mobilenetv2", "data.source=synthetic", "data.shape=[32,32,3]"}},
    {"efficientnet", "mlp", {"model.family=efficientnet", "data.source=synthetic", "data.shape=[32,32,3]"}},
    {"vit", "mlp", {"model.family=vit", "data.source=synthetic"}},
    {"lstm", "mlp", {"model.family=lstm", "data.source=synthetic"}},
    {"gru", "mlp", {"model.family=lstm", "model.cell=gru", "data.source=synthetic"}},
    {"gpt with rotary positions",
     "gpt_tiny",
     {"data.path=", "model.norm=rms", "model.positions=rotary", "model.mlp=swiglu", "model.kv_heads=2",
      "model.bias=false", "model.tied=false"}},
    {"gpt with heads of 128", "gpt_tiny", {"data.path=", "model.layers=1", "model.heads=2", "model.width=256"}},
};

using Use = void (*)(const ProgramSet&, const Target&, const std::string& user, Texts&);

// The Programs of all recipes and workloads for a target, in one precision.
void use_recipes(const Target& target, const KernelTable& kernels, DType precision, bool benches, Use use,
                 Texts& texts) {
  const auto planned = [&](StepSet steps, const PassContext& context, const std::string& user) {
    const int64_t before = texts.uses(user);
    use(plan(run_pipeline(std::move(steps), context).graphs, target, kernels), target, user, texts);
    if (texts.uses(user) == before)
      throw DeviceError(fmt::format("{} has no kernel for {} in {}", user, target.name, to_string(precision)));
  };
  std::vector<BuiltinRecipe> recipes = selftest_recipes();
  if (benches) recipes.assign(builtin_recipes().begin(), builtin_recipes().end());
  for (const BuiltinRecipe& builtin : recipes) {
    Recipe r = load_recipe(std::string(builtin.name));
    r.passes.set(PrecisionOptions{std::string(to_string(precision))});
    planned(build_steps(r, data_of(builtin.name, r), {}), pass_context(r, target),
            fmt::format("recipe {}", builtin.name));
  }
  if (!benches) return;
  for (const FamilyRecipe& f : kFamilyRecipes) {
    Recipe r = load_recipe(f.base, f.sets);
    r.passes.set(PrecisionOptions{std::string(to_string(precision))});
    r.train.batch_size = 16;
    planned(build_steps(r, describe_data(r), {}), pass_context(r, target), fmt::format("family {}", f.name));
  }
  for (const Workload& w : workloads()) {
    PassContext context{target};
    context.options.set(PrecisionOptions{std::string(to_string(precision))}).set(LossScaleOptions{1, 0});
    planned(train_step(w.config, w.sample, w.batch), context, fmt::format("bench {}", w.name));
  }
}

// --- the opencl backend ---------------------------------------------------------------------------------------------

Target wide_opencl_target() {
  Target t;
  t.name = "opencl";
  t.host_memory = false;
  t.alignment = 256;
  for (const DType type : {DType::f64, DType::f16, DType::bf16}) t.dtypes.push_back(type);
  t.native_ops = opencl_kernels().ops();
  return t;
}

void use_opencl(const ProgramSet& set, const Target& target, const std::string& user, Texts& texts) {
  ProductTiles tiles;
  tiles.style = LaunchStyle::wide;
  for (const Program& p : set.programs)
    for (const Launch& l : p.launches)
      for (const KernelCall& call : node_calls({l.node, l.in, l.out, target}, tiles))
        texts.add(call.source, call.name, user);
}

void use_sample(const OpDef& op, Sample s, DType t, const Target& target, Texts& texts) {
  if (!op.runs_alone()) return;
  bool changed = t == DType::f32;
  for (SampleInput& in : s.inputs)
    if (in.type.dtype == DType::f32) {
      in.type.dtype = t;
      changed = true;
    }
  if (!changed) return;
  Graph g;
  try {
    g = sample_graph(op, s);
  } catch (const UserError&) {
    return;  // parameters that name a dtype have no form in another type
  }
  use_opencl(plan({g}, target, opencl_kernels()), target, fmt::format("op {}", op.name()), texts);
}

// --- the cuda backend -----------------------------------------------------------------------------------------------

cuda::Api simulator;
int asked_epilogue = 0;

// Binding looks at addresses alone, so the arena needs no memory.
cuda::Api binding_api() {
  cuda::Api api = simulator;
  api.cuMemAlloc_v2 = [](cuda::Address* a, size_t) {
    *a = cuda::Address{1} << 40;
    return int{cuda::kSuccess};
  };
  api.cuMemFree_v2 = [](cuda::Address) { return int{cuda::kSuccess}; };
  api.cuMemsetD8Async = [](cuda::Address, unsigned char, size_t, cuda::StreamHandle) { return int{cuda::kSuccess}; };
  return api;
}

cuda::Api without_libraries(cuda::Api api) {
  api.cublaslt_missing = api.cudnn_missing = "left out";
  return api;
}

cuda::Api without_epilogues(cuda::Api api) {
  api.cublasLtMatmulDescSetAttribute = [](cuda::LtMatmulDesc d, int attribute, const void* value, size_t bytes) {
    if (attribute == cuda::kDescEpilogue) asked_epilogue = *static_cast<const int*>(value);
    return simulator.cublasLtMatmulDescSetAttribute(d, attribute, value, bytes);
  };
  api.cublasLtMatmulAlgoGetHeuristic = [](cuda::LtHandle h, cuda::LtMatmulDesc desc, cuda::LtLayout a, cuda::LtLayout b,
                                          cuda::LtLayout c, cuda::LtLayout d, cuda::LtPreference p, int wanted,
                                          cuda::LtHeuristicResult* results, int* found) {
    if (asked_epilogue != cuda::kEpilogueDefault) return int{cuda::kLtNotSupported};
    return simulator.cublasLtMatmulAlgoGetHeuristic(h, desc, a, b, c, d, p, wanted, results, found);
  };
  return api;
}

cuda::Api without_offers(cuda::Api api) {
  api.cublasLtMatmulAlgoGetHeuristic = [](cuda::LtHandle, cuda::LtMatmulDesc, cuda::LtLayout, cuda::LtLayout,
                                          cuda::LtLayout, cuda::LtLayout, cuda::LtPreference, int,
                                          cuda::LtHeuristicResult*, int*) { return int{cuda::kLtNotSupported}; };
  api.cudnnBackendGetAttribute = [](cuda::DnnDescriptor d, int name, int type, int64_t wanted, int64_t* count,
                                    void* data) {
    if (name != cuda::kHeurResults) return simulator.cudnnBackendGetAttribute(d, name, type, wanted, count, data);
    *count = 0;
    return int{cuda::kDnnSuccess};
  };
  return api;
}

// Every product and attention as on a card with one block along y and z.
void use_folded(const Target& target, Texts& texts) {
  ProductTiles tiles;
  tiles.style = LaunchStyle::wide;
  for (const char* name : {"matmul", "conv2d_dx", "conv2d_dw", "attention", "attention_grad"}) {
    const OpDef& op = *registry().find(name);
    for (const Sample& sample : op.samples()) {
      const Graph g = sample_graph(op, sample);
      const ProgramSet set = plan({g}, target, opencl_kernels());
      for (const Launch& l : set.programs[0].launches)
        for (KernelCall& call : node_calls({l.node, l.in, l.out, target}, tiles))
          if (call.groups[1] * call.groups[2] > 1) {
            const KernelCall folded = fold_grid(std::move(call), {2147483647, 1, 1});
            texts.add(folded.source, folded.name, fmt::format("op {}, folded", name));
          }
    }
  }
}

std::vector<cuda::Api> bound_to;  // cards of one target, whose libraries differ in what they turn out to have

void use_cuda(const ProgramSet& set, const Target& target, const std::string& user, Texts& texts) {
  for (const cuda::Api& api : bound_to) {
    CudaDevice device(api, 0, target, "");
    device.allocate(set.segments);
    std::vector<std::unique_ptr<Kernel>> kernels;
    for (const Program& p : set.programs)
      for (const Launch& l : p.launches)
        kernels.push_back(l.candidate.bind(device, {l.node, l.in, l.out, target}, l.args));
    for (const auto& [source, name] : device.library().announced()) texts.add(source, name, user);
  }
}

int write_texts(const char* source, const char* list, bool all_kernels) {
  Texts texts;
  const Target opencl = wide_opencl_target();
  if (all_kernels)
    for (const OpDef* op : registry().all())
      for (const Sample& sample : op->samples())
        for (const DType t : {DType::f32, DType::f64, DType::f16, DType::bf16})
          use_sample(*op, sample, t, opencl, texts);
  constexpr DType kPrecisions[] = {DType::f32, DType::bf16, DType::f16};
  for (const DType t : kPrecisions) use_recipes(opencl, opencl_kernels(), t, all_kernels, use_opencl, texts);
  const size_t common = texts.size();

  simulator = sim::simulator_api();
  sim::set_device_memory(int64_t{80} << 30);
  const cuda::Api all = binding_api();
  use_folded(opencl, texts);
  const std::vector<cuda::Api> cards[] = {{all, without_epilogues(all), without_offers(all)}, {without_libraries(all)}};
  for (const std::vector<cuda::Api>& alike : cards) {
    bound_to = alike;
    Target target = CudaBackend(&bound_to[0]).target({});
    target.library_workspace = int64_t{32}
                               << 20;  // as on Hopper: the simulator's cuDNN has one engine, which may want it
    for (const DType t : kPrecisions) use_recipes(target, cuda_kernels(), t, all_kernels, use_cuda, texts);
  }
  if (const auto reports = sim::take_reports(); !reports.empty()) throw DeviceError(reports[0]);
  texts.write(source, list);
  std::cout << texts.size() << " kernels, " << texts.size() - common << " of them of the cuda backend alone\n";
  return 0;
}

}  // namespace
}  // namespace lathe

int main(int argc, char** argv) {
  const bool recipes = argc == 4 && std::string_view(argv[3]) == "recipes";
  if (argc != 3 && !recipes) {
    std::cerr << "usage: kernel_texts FILE.cu FILE.json [recipes]\n";
    return 64;
  }
  try {
    return lathe::write_texts(argv[1], argv[2], !recipes);
  } catch (const std::exception& e) {
    std::cerr << e.what() << "\n";
    return 1;
  }
}
