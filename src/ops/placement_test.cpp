// Every row of placements that an op has is true: the op on what each rank has gives what the row says of the whole.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/part.h"
#include "base/philox.h"
#include "ops/registry.h"
#include "ops/sample.h"

namespace lathe {
namespace {

using Tensors = std::vector<HostTensor>;

// f(index in the whole) for each element of the part, in order.
template <class F>
void for_each_element(const Shape& whole, int axis, const Part& part, F&& f) {
  for_each_run(whole, axis, part, [&](int64_t from, int64_t, int64_t count) {
    for (int64_t i = 0; i < count; ++i) f(from + i);
  });
}

class RowCheck {
 public:
  RowCheck(const OpDef& op, const Sample& s, const PlacementRow& row, int ranks)
      : op_(op), sample_(s), row_(row), ranks_(ranks), inputs_(sample_inputs(s, 5)) {
    whole_ = interpret(sample_graph(op, s), inputs_, Precision::exact);
    // As many units as all axes that are split have a multiple of.
    for (size_t i = 0; i < inputs_.size(); ++i) take_axis(inputs_[i].type, row.in[i]);
    for (size_t i = 0; i < whole_.size(); ++i) take_axis(whole_[i].type, row.out[i]);
  }

  // Whether there was anything to compare.
  bool run() const {
    if (splits_ && units_ == 0) return false;
    Tensors together;
    for (const HostTensor& t : whole_) together.push_back({t.type, std::vector<double>(t.data.size(), 0.0)});
    for (int rank = 0; rank < ranks_; ++rank) {
      const Tensors out = of_rank(rank);
      for (size_t i = 0; i < out.size(); ++i) add(together[i], out[i], row_.out[i], rank);
    }
    for (size_t i = 0; i < whole_.size(); ++i)
      EXPECT_LT(relative_error(together[i], whole_[i]), 1e-9) << "output " << i;
    return true;
  }

 private:
  void take_axis(const TensorType& t, Placement p) {
    if (!p.is_split()) return;
    units_ = splits_ ? std::gcd(units_, t.shape[p.axis]) : t.shape[p.axis];
    splits_ = true;
  }
  Part part(const TensorType& t, Placement p, int rank) const { return part_on(t.shape[p.axis], units_, ranks_, rank); }
  TensorType local(const TensorType& t, Placement p, int rank) const {
    return p.is_split() ? TensorType{t.dtype, t.shape.with_dim(p.axis, part(t, p, rank).size())} : t;
  }

  Tensors of_rank(int rank) const {
    Sample own{sample_.label, {}, sample_.params};
    Tensors in;
    Types ins, outs;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const HostTensor& x = inputs_[i];
      HostTensor mine{local(x.type, row_.in[i], rank), {}};
      if (row_.in[i].is_split())
        for_each_element(x.type.shape, row_.in[i].axis, part(x.type, row_.in[i], rank),
                         [&](int64_t k) { mine.data.push_back(x.data[static_cast<size_t>(k)]); });
      else
        mine.data = x.data;
      if (row_.in[i].is_partial())
        for (size_t k = 0; k < mine.data.size(); ++k) mine.data[k] = summand(x.data[k], x.type.dtype, k, rank);
      own.inputs.push_back({mine.type});
      ins.push_back(mine.type);
      in.push_back(std::move(mine));
    }
    for (size_t i = 0; i < whole_.size(); ++i) outs.push_back(local(whole_[i].type, row_.out[i], rank));
    if (op_.resized) own.params = op_.resized(ins, outs, sample_.params.get());
    Tensors out = interpret(sample_graph(op_, own), in, Precision::exact);
    for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i].type, outs[i]) << "output " << i;
    return out;
  }
  // Numbers of ranks that add up to x, each of its type.
  double summand(double x, DType type, size_t k, int rank) const {
    const CounterRng rng(3, 1, 2, 3);
    const auto share = [&](int r) {
      const double u = rng.uniform(k * static_cast<size_t>(ranks_) + static_cast<size_t>(r));
      return is_float(type) ? 2 * u : type == DType::u8 ? 0 : std::floor(20 * u);
    };
    if (rank > 0) return share(rank);
    for (int r = 1; r < ranks_; ++r) x -= share(r);
    return x;
  }

  void add(HostTensor& whole, const HostTensor& own, Placement p, int rank) const {
    if (p.is_split()) {
      size_t from = 0;
      for_each_element(whole.type.shape, p.axis, part(whole.type, p, rank),
                       [&](int64_t k) { whole.data[static_cast<size_t>(k)] = own.data[from++]; });
    } else if (p.is_partial()) {
      for (size_t k = 0; k < own.data.size(); ++k) whole.data[k] += own.data[k];
    } else {
      whole.data = own.data;
    }
  }

  const OpDef& op_;
  const Sample& sample_;
  const PlacementRow& row_;
  const int ranks_;
  Tensors inputs_, whole_;
  int64_t units_ = 0;
  bool splits_ = false;
};

TEST(Placement, EveryRowOfEveryOpIsTrue) {
  int rows = 0;
  for (const OpDef* op : registry().all()) {
    if (!op->placements) continue;
    int of_op = 0;
    for (const Sample& s : op->samples()) {
      Types in;
      for (const SampleInput& x : s.inputs) in.push_back(x.type);
      const Types out = op->infer(in, s.params.get());
      for (const PlacementRow& row : op->placements(in, out, s.params.get())) {
        std::string text = std::string(op->name()) + " " + s.label;
        for (Placement p : row.in) text += " " + to_string(p);
        for (Placement p : row.out) text += " -> " + to_string(p);
        SCOPED_TRACE(text);
        for (const int ranks : {2, 3}) of_op += RowCheck(*op, s, row, ranks).run() ? 1 : 0;
      }
    }
    EXPECT_GT(of_op, 0) << op->name();
    rows += of_op;
  }
  EXPECT_GT(rows, 500);
}

// Primitives that no row is known of run whole on every rank: slow, but right. None should come by accident.
TEST(Placement, PrimitivesHaveRows) {
  for (const OpDef* op : registry().all())
    EXPECT_TRUE(op->placements || op->is_composite() || !op->runs_alone()) << op->name();
}

}  // namespace
}  // namespace lathe
