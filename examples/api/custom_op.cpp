// A custom op with its gradient: squareplus(x) = (x + sqrt(x^2 + 4)) / 2, checked and trained.
#include <lathe/lathe.h>

#include <cstdio>
#include <random>

using namespace lathe;

struct Squareplus {
  using Params = NoParams;
  static constexpr OpInfo info{.name = "squareplus", .doc = "(x + sqrt(x^2 + 4)) / 2"};
  // In terms of other ops: so it runs on every device, and is fused with its neighbours.
  static Values expand(Builder&, ArgValues x, const Params&) { return {(x[0] + sqrt(square(x[0]) + 4.0)) * 0.5}; }
  // dy/dx = 1 / (1 + 1 / y^2) needs the result alone. Left out, the gradient would follow from expand().
  static Values vjp(const Vjp& v, const Params&) { return {v.dy() / (1.0 + 1.0 / square(v.y[0]))}; }
  static std::vector<Sample> samples() {
    return {{"plain", {{.type = {DType::f32, {3, 5}}, .lo = -3, .hi = 3}}, make_params(Params{})}};
  }
};
const OpDef squareplus_op = make_op<Squareplus>();

Value squareplus(Value x) { return x.builder().add1(squareplus_op, {&x, 1}, NoParams{}); }

// A model family around it, which recipes can then name; the fields of its parameters are keys of [model].
struct SquareplusNet {
  struct Params {
    int64_t units = 16;
    template <class F>
    static void fields(F&& f) {
      f("units", &Params::units, allow::range(1, 1024), "width of the hidden layer");
    }
  };
  static constexpr FamilyInfo info{.name = "squareplus_net", .doc = "two layers with squareplus between"};
  static Value build(Net& net, const Params& p, const ModelInputs& in, Value x) {
    const Value rows = reshape(x, {x.dim(0), x.shape().numel() / x.dim(0)});
    return linear(net, "out", squareplus(linear(net, "in", rows, p.units)), in.classes);
  }
};

constexpr const char* kRecipe = R"(
  model = { family = "squareplus_net", units = 32 }
  data.validation = 0.2
  optimizer = { name = "adam", lr = 0.02 }
  train = { epochs = 30, batch_size = 50 }
)";

int main(int argc, char** argv) try {
  register_op(squareplus_op);
  register_family(make_family<SquareplusNet>());
  const GradientCheck check = check_gradient(squareplus_op, Squareplus::samples()[0]);
  std::printf("gradient: relative error %.1e, %s\n", check.error, check.ok() ? "ok" : "WRONG");

  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> x(2 * 1000);
  std::vector<int32_t> inside(1000);
  for (float& v : x) v = uniform(random);
  for (size_t i = 0; i < inside.size(); ++i) inside[i] = x[2 * i] * x[2 * i] + x[2 * i + 1] * x[2 * i + 1] < 0.5f;
  TrainOptions options;
  options.out = argc > 1 ? argv[1] : "squareplus";
  options.train_data = data::array_source(x, {2}, inside, 2);
  const TrainResult result = train(parse_recipe(kRecipe, "squareplus.toml"), options);
  const double accuracy = result.validation->accuracy;  // of the fifth of the points that was held out
  std::printf("points inside of a circle: validation accuracy %.1f %%\n", 100 * accuracy);
  return check.ok() && accuracy > 0.9 ? 0 : 1;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return static_cast<int>(e.exit_code());
}
