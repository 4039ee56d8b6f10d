#include "ops/grad.h"

namespace lathe {
namespace {

struct Grad {
  using Params = NoParams;
  static constexpr OpInfo info{
      .name = "grad", .doc = "derivatives of the first input by each of the others", .inputs = -1};
  static Types infer(ArgTypes x, const Params&) {
    LATHE_USER_CHECK(is_float(x[0].dtype) && x[0].numel() == 1, "grad: the loss must be one float, got {}",
                     to_string(x[0]));
    for (const TensorType& t : x.subspan(1))
      LATHE_USER_CHECK(is_float(t.dtype), "grad: {} is not differentiable", to_string(t));
    return {x.begin() + 1, x.end()};
  }
  static void reference(RefOuts, RefIns, const Params&) {
    throw InternalError("grad cannot be executed; run the autodiff pass first");
  }
  static std::vector<Sample> samples() { return {}; }
};

}  // namespace

constinit const OpDef grad_op = make_op<Grad>();

Values grad(Value loss, ArgValues wrt) {
  Values x{loss};
  x.insert(x.end(), wrt.begin(), wrt.end());
  return loss.builder().add(grad_op, x, make_params(NoParams{}));
}

}  // namespace lathe
