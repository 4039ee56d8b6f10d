#include "ops/gradient.h"

namespace lathe {
namespace {

struct Gradient {
  using Params = GradientParams;
  static constexpr OpInfo info{.name = "gradient", .doc = "x itself, named as the gradient of a parameter"};
  static Values expand(Builder&, ArgValues x, const Params&) { return {x[0]}; }
  static std::vector<Sample> samples() {
    return {{"plain", {{{DType::f32, {3, 4}}}}, make_params(Params{"fc.weight"})}};
  }
};

}  // namespace

constinit const OpDef gradient_op = make_op<Gradient>();

Value gradient(Value x, const std::string& of) {
  return x.builder().add1(gradient_op, std::span(&x, 1), GradientParams{of});
}

}  // namespace lathe
