// A pass that adds state to every training graph: exponential moving means and variances of all gradients. Their
// variance relative to their size, the noise of the gradient, is a metric: metrics.jsonl and report.html show it.
#include <lathe/lathe.h>

#include <cstdio>

using namespace lathe;

constexpr double kDecay = 0.9;

StepSet gradient_variance(StepSet set, const PassContext&) {
  for (Graph& graph : set.graphs) {
    const std::vector<GradientNode> gradients = gradients_of(graph);
    if (gradients.empty()) continue;  // evaluation
    Edit e(std::move(graph));
    Builder& b = e.builder();
    const Origin origin(b, "gradient_variance", Role::update);
    Value noise, size;
    for (const GradientNode& g : gradients) {
      const StateSpec param = *set.state.find(g.of);
      const auto moving = [&](const char* what) {
        return e.state_input({g.of + what, param.type, InputKind::optimizer, Init::constant(0), param.file, "", g.of,
                              true, StateFile::optimizer},
                             set.state);
      };
      const Value now = e.value(g.out), mean = moving(".grad_mean"), variance = moving(".grad_var");
      const Value away = now - mean, new_mean = mean + away * (1 - kDecay);
      const Value new_variance = (variance + square(away) * (1 - kDecay)) * kDecay;
      b.update(mean, new_mean);
      b.update(variance, new_variance);
      noise = noise.valid() ? noise + sum_all(new_variance) : sum_all(new_variance);
      size = size.valid() ? size + sum_all(square(new_mean)) : sum_all(square(new_mean));
    }
    b.output(noise / (size + 1e-12), OutputKind::metric, "gradient_noise");
    graph = e.finish();
  }
  return set;
}

constexpr const char* kRecipe = R"(
  data = { source = "synthetic", shape = [8, 8, 1], train_samples = 1024, test_samples = 256 }
  model = { family = "mlp", hidden = [64] }
  train = { epochs = 6, batch_size = 64, log_every = 4 }
)";

int main(int argc, char** argv) try {
  TrainOptions options;
  options.out = argc > 1 ? argv[1] : "gradient_variance";
  // Before the gates, so that a refused step leaves its state alone, too.
  options.compile.passes.added.push_back(
      {.after = "clip_value",
       .pass = {"gradient_variance", gradient_variance, Level::tensor, false, kTouchesState | kTouchesPorts}});
  const TrainResult result = train(parse_recipe(kRecipe, "variance.toml"), options);
  write_report(options.out);
  const RunInfo run = read_run(options.out);
  const auto noise = run.curves.find("gradient_noise");
  if (noise == run.curves.end()) return 1;
  const std::vector<double>& y = noise->second.y;
  std::printf("accuracy %.1f %%; gradient noise from %.3g to %.3g over %zu lines, in report.html\n",
              100 * result.accuracy, y.front(), y.back(), y.size());
  return result.accuracy > 0.8 && y.back() > 0 ? 0 : 1;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return static_cast<int>(e.exit_code());
}
