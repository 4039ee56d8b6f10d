// kernel_texts FILE.cu FILE.json: writes the wide (GPU) form of every kernel in the common dialect: of every sample of
// every op, in every float type, and of every launch of the built-in recipes and of the benchmarks' workloads. Needs no
// device. tests/kernels/nvrtc.py compiles the result.
#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "backend/kernels/node_calls.h"
#include "backend/opencl/opencl_kernels.h"
#include "ops/registry.h"
#include "ops/sample.h"
#include "plan/plan.h"
#include "train/compile.h"
#include "train/workload.h"

namespace lathe {
namespace {

struct Text {
  std::string name;
  int group_size = 1;
  std::set<std::string> users;
};

class Collector {
 public:
  Collector() {
    target_.name = "opencl";
    target_.host_memory = false;
    target_.alignment = 256;
    for (const DType t : {DType::f64, DType::f16, DType::bf16}) target_.dtypes.push_back(t);
    target_.native_ops = opencl_kernels().ops();
    tiles_.style = LaunchStyle::wide;
  }

  void add_samples() {
    for (const OpDef* op : registry().all())
      for (const Sample& sample : op->samples())
        for (const DType t : {DType::f32, DType::f64, DType::f16, DType::bf16}) add_sample(*op, sample, t);
  }

  void add_recipes() {
    for (const BuiltinRecipe& builtin : builtin_recipes()) {
      Recipe r = load_recipe(std::string(builtin.name));
      r.device.name = "opencl";
      add_programs(compile(r, describe_data(r)).set, fmt::format("recipe {}", builtin.name));
    }
    for (const Workload& w : workloads()) {
      Step step = train_step(w.config, w.sample, w.batch);
      std::vector<Graph> graphs;
      graphs.push_back(run_pipeline(std::move(step.graph), {target_}));
      add_programs(plan(std::move(graphs), target_, opencl_kernels()), fmt::format("bench {}", w.name));
    }
  }

  void write(const char* source, const char* list) const {
    std::ofstream cu(source);
    cu << kernel_text::dialect;
    nlohmann::ordered_json j = nlohmann::json::array();
    for (const std::string& text : order_) {
      cu << "\n" << text;
      const Text& t = texts_.at(text);
      j.push_back({{"name", t.name}, {"group", t.group_size}, {"users", t.users}});
    }
    std::ofstream(list) << j.dump(1) << "\n";
    std::cout << order_.size() << " kernels\n";
  }

 private:
  void add_sample(const OpDef& op, Sample s, DType t) {
    if (op.name() == "grad") return;
    bool changed = false;
    for (SampleInput& in : s.inputs)
      if (t != DType::f32 && in.type.dtype == DType::f32) {
        in.type.dtype = t;
        changed = true;
      }
    if (t != DType::f32 && !changed) return;
    Graph g;
    try {
      g = sample_graph(op, s);
    } catch (const UserError&) {
      return;  // parameters that name a dtype have no form in another type
    }
    add_programs(plan({g}, target_, opencl_kernels()), fmt::format("op {}", op.name()));
  }

  void add_programs(const ProgramSet& set, const std::string& user) {
    for (const Program& p : set.programs)
      for (const Launch& l : p.launches)
        for (const KernelCall& call : node_calls({l.node, l.in, l.out, target_}, tiles_)) {
          Text& t = texts_[call.source];
          if (t.name.empty()) order_.push_back(call.source);
          t.name = call.name;
          t.group_size = call.group_size;
          t.users.insert(user);
        }
  }

  Target target_;
  ProductTiles tiles_;
  std::map<std::string, Text> texts_;
  std::vector<std::string> order_;
};

}  // namespace
}  // namespace lathe

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: kernel_texts FILE.cu FILE.json\n";
    return 64;
  }
  try {
    lathe::Collector c;
    c.add_samples();
    c.add_recipes();
    c.write(argv[1], argv[2]);
  } catch (const std::exception& e) {
    std::cerr << e.what() << "\n";
    return 1;
  }
  return 0;
}
