// What the ops compute, for a comparison with PyTorch (torch_ops.py): for every op and sample, at sizes drawn at
// random, in f64 on the reference interpreter: inputs, outputs y, the gradients g of L = sum <c, y> by the float
// inputs, and those of <g, v>, for random c and v.
//
//   op_values DIRECTORY SEED
// writes DIRECTORY/cases.json, which describes the cases, and DIRECTORY/numbers, all their numbers as f64.
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "ir/builder.h"
#include "ir/interpret.h"
#include "ops/elementwise.h"
#include "ops/grad.h"
#include "ops/reduce.h"
#include "ops/registry.h"
#include "ops/sample.h"
#include "passes/autodiff.h"

namespace lathe {
namespace {

using Json = nlohmann::json;
using Random = std::mt19937_64;

constexpr int64_t kMostElements = 4000;  // of a case

Json attr_json(const Attr& attr) {
  return std::visit(
      [](const auto& v) -> Json {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, DType>)
          return std::string(to_string(v));
        else if constexpr (std::is_same_v<T, GraphPtr>)
          return nullptr;
        else
          return v;
      },
      attr);
}

// The numbers of all cases, one after another.
class Numbers {
 public:
  explicit Numbers(const std::string& path) : file_(path, std::ios::binary) {}

  Json add(const HostTensor& t) {
    file_.write(reinterpret_cast<const char*>(t.data.data()), static_cast<std::streamsize>(t.data.size() * 8));
    const Json place{
        {"dtype", std::string(to_string(t.type.dtype))}, {"shape", t.type.shape.to_ints()}, {"at", count_}};
    count_ += static_cast<int64_t>(t.data.size());
    return place;
  }
  Json add(std::span<const HostTensor> tensors) {
    Json list = Json::array();
    for (const HostTensor& t : tensors) list.push_back(add(t));
    return list;
  }
  bool good() { return file_.flush().good(); }

 private:
  std::ofstream file_;
  int64_t count_ = 0;
};

// The sample with its sizes changed: equal sizes stay equal, and none shrinks, so that indices stay in range.
Sample resized(const Sample& s, Random& random) {
  std::map<int64_t, int64_t> sizes;
  Sample out = s;
  for (SampleInput& in : out.inputs) {
    Ints dims = in.type.shape.to_ints();
    for (int64_t& d : dims)
      if (d > 1) d = sizes.try_emplace(d, d + static_cast<int64_t>(random() % 4)).first->second;
    in.type.shape = Shape(dims);
  }
  return out;
}

// Samples of 16 bits repeat others: here all is f64.
bool accepted(const OpDef& op, const Sample& s) {
  Types in;
  int64_t elements = 0;
  for (const SampleInput& i : s.inputs) {
    if (is_16bit(i.type.dtype)) return false;
    in.push_back(i.type);
  }
  try {
    for (const TensorType& t : op.infer(in, s.params.get())) elements += t.numel();
  } catch (const UserError&) {
    return false;  // parameters that name sizes
  }
  for (const TensorType& t : in) elements += t.numel();
  return elements <= kMostElements;
}

HostTensor random_like(const TensorType& t, Random& random) {
  HostTensor out{t, {}};
  for (int64_t i = 0; i < t.numel(); ++i) out.data.push_back(std::uniform_real_distribution<double>(-1, 1)(random));
  return out;
}

// One graph for the values and both orders of derivatives.
class Case {
 public:
  Case(const OpDef& op, const Sample& s, Random& random) : inputs_(sample_inputs(s, random())), all_(inputs_) {
    Builder b("case");
    Values x;
    for (size_t i = 0; i < s.inputs.size(); ++i) {
      x.push_back(b.input(s.inputs[i].type, InputKind::batch, fmt::format("x{}", i)));
      if (is_float(s.inputs[i].type.dtype)) by_.push_back(x.back());
    }
    const Values y = b.add(op, x, s.params);
    for (size_t i = 0; i < y.size(); ++i) b.output(y[i], OutputKind::result, fmt::format("y{}", i));
    outputs_ = y.size();
    if (op.is_differentiable()) {
      const Value loss = inner_product(b, y, "c", weights_, random);
      if (loss && !by_.empty()) {
        const Values g = grad(loss, by_);
        add_results(b, g, "g");
        const Value along = inner_product(b, g, "v", directions_, random);
        add_results(b, grad(along, by_), "h");
      }
    }
    results_ = interpret(autodiff(b.finish(), PassContext{}), all_, Precision::exact);
  }

  Json write(Numbers& numbers) const {
    Json j{
        {"inputs", numbers.add(inputs_)}, {"weights", numbers.add(weights_)}, {"directions", numbers.add(directions_)}};
    const std::span<const HostTensor> all(results_);
    j["outputs"] = numbers.add(all.first(outputs_));
    const size_t order = (all.size() - outputs_) / 2;
    j["first"] = numbers.add(all.subspan(outputs_, order));
    j["second"] = numbers.add(all.subspan(outputs_ + order));
    return j;
  }

 private:
  // sum <w, values> over the floats, with a random w each, which becomes an input.
  Value inner_product(Builder& b, const Values& values, const char* name, std::vector<HostTensor>& drawn,
                      Random& random) {
    Value sum;
    for (const Value& v : values) {
      if (!is_float(v.dtype())) continue;
      const Value w = b.input(v.type(), InputKind::batch, fmt::format("{}{}", name, drawn.size()));
      drawn.push_back(random_like(v.type(), random));
      all_.push_back(drawn.back());
      const Value term = sum_all(w * v);
      sum = sum ? sum + term : term;
    }
    return sum;
  }
  static void add_results(Builder& b, const Values& values, const char* name) {
    for (size_t i = 0; i < values.size(); ++i) b.output(values[i], OutputKind::result, fmt::format("{}{}", name, i));
  }

  std::vector<HostTensor> inputs_, all_, weights_, directions_, results_;
  Values by_;
  size_t outputs_ = 0;
};

int run(const std::string& directory, uint64_t seed) {
  Random random(seed);
  Numbers numbers(directory + "/numbers");
  Json ops = Json::array();
  for (const OpDef* op : registry().all()) {
    Json cases = Json::array();
    for (const Sample& s : op->samples()) {
      const Sample other = resized(s, random);
      const Sample& chosen = accepted(*op, other) ? other : s;
      if (!accepted(*op, chosen)) continue;
      Json attrs = Json::object();
      for (const auto& [name, attr] : op->to_attrs(chosen.params.get())) attrs[name] = attr_json(attr);
      Json j;
      try {
        j = Case(*op, chosen, random).write(numbers);
      } catch (const std::exception& e) {
        throw InternalError(fmt::format("{}/{}: {}", op->name(), s.label, e.what()));
      }
      j["label"] = s.label;
      j["attrs"] = attrs;
      cases.push_back(j);
    }
    ops.push_back({{"op", std::string(op->name())}, {"cases", cases}});
  }
  std::ofstream text(directory + "/cases.json");
  text << ops.dump() << "\n";
  LATHE_USER_CHECK(text.flush().good() && numbers.good(), "{}: cannot be written", directory);
  return 0;
}

}  // namespace
}  // namespace lathe

int main(int argc, char** argv) {
  try {
    LATHE_USER_CHECK(argc == 3, "usage: op_values DIRECTORY SEED");
    return lathe::run(argv[1], std::stoull(argv[2]));
  } catch (const std::exception& e) {
    fmt::print(stderr, "op_values: {}\n", e.what());
    return 1;
  }
}
