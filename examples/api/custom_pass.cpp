// A custom pass: every gelu becomes x * sigmoid(1.702 x), before autodiff, so that the gradient follows.
#include <lathe/lathe.h>

#include <algorithm>
#include <cstdio>

namespace {

lathe::Graph quick_gelu(lathe::Graph g, const lathe::PassContext&) {
  return lathe::rebuild(g, [](lathe::Rebuild& r, const lathe::Node& n) -> std::optional<lathe::Values> {
    if (!n.is("gelu")) return std::nullopt;  // the node stays as it is
    const lathe::Value x = r.mapped(n.inputs[0]);
    return lathe::Values{x * sigmoid(x * 1.702)};
  });
}

auto count(const lathe::Graph& g, const char* op) {
  return std::ranges::count_if(g.nodes, [&](const lathe::Node& n) { return n.is(op); });
}

constexpr const char* kRecipe = R"(
  data = { source = "synthetic", shape = [8, 8, 1], train_samples = 1024, test_samples = 256 }
  model = { family = "mlp", hidden = [64], activation = "gelu" }
  train = { epochs = 8, batch_size = 64 }
)";

}  // namespace

int main(int argc, char** argv) try {
  const lathe::Recipe recipe = lathe::parse_recipe(kRecipe, "pass.toml");
  lathe::TrainOptions options;
  options.out = argc > 1 ? argv[1] : "quick_gelu";
  lathe::PipelineOptions& passes = options.compile.passes;
  passes.added.push_back(
      {.after = "precision", .pass = {"quick_gelu", lathe::each_graph<quick_gelu>, lathe::Level::tensor}});
  passes.on_pass = [](const lathe::PassEntry& p, const lathe::StepSet& before, const lathe::StepSet& after) {
    const lathe::Graph &from = before.graphs[0], &to = after.graphs[0];
    if (p.name == "quick_gelu" && from.name == "train")
      std::printf("quick_gelu: %td gelu, %td sigmoid before; %td, %td after\n", count(from, "gelu"),
                  count(from, "sigmoid"), count(to, "gelu"), count(to, "sigmoid"));
  };
  // All passes as they will run, the own one among them: like the others it is verified, timed, and can be disabled.
  for (const lathe::PassEntry& p : lathe::pipeline_with(passes)) std::printf("%s ", std::string(p.name).c_str());
  std::printf("\n");
  const lathe::TrainResult result = lathe::train(recipe, options);
  std::printf("%lld steps: accuracy %.1f %%\n", static_cast<long long>(result.steps), 100 * result.accuracy);
  return result.accuracy > 0.8 ? 0 : 1;
} catch (const lathe::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return static_cast<int>(e.exit_code());
}
