#include "loop/lr_find.h"

#include <algorithm>
#include <cmath>

#include "io/page/svg.h"
#include "loop/evaluation.h"
#include "loop/step_inputs.h"
#include "rundir/run_dir.h"
#include "session/state.h"

namespace lathe {
namespace {

constexpr double kSmoothing = 0.9;  // of the loss over steps
constexpr double kExplosion = 4;    // the sweep ends at this multiple of the lowest smoothed loss
constexpr double kFall = 0.02;      // part of the loss that must be gained for a suggestion
constexpr size_t kSpan = 4;         // slopes are taken over so many points to each side

// Loss of one optimizer step; not finite when the step was refused.
class Sweep {
 public:
  explicit Sweep(const Recipe& r, const CompileOptions& o) {
    const DeviceName device = parse_device_name(r.device.name);
    require_device(device);
    dataset_ = open_dataset(r);
    c_ = compile(r, dataset_.spec, o);
    session_ = open_session(c_);
    session_->initialize(r.seed);
    loader_ = std::make_unique<data::Loader>(*dataset_.train, c_.loader,
                                             loader_slots(session_->executor(), 0, c_.executor.slots, true));
    loader_->start(0);
  }

  double step(int64_t step, double lr) {
    const bool accumulates = c_.steps.accumulate > 1;
    const int64_t terms = c_.data.terms();
    double loss = 0;
    for (int64_t i = 0; i < c_.steps.batches_in(step); ++i) {
      const data::Batch b = loader_->next();
      const bool tail = b.count != c_.steps.batch;
      const char* name = accumulates ? (tail ? "accumulate_tail" : "accumulate") : (tail ? "train_tail" : "train");
      stage_step_inputs(session_->executor(), b.slot, c_.recipe.seed, step, lr,
                        1.0 / static_cast<double>(c_.steps.samples_in(step) * terms));
      stage_optional_inputs(session_->executor(), b.slot, c_, step);
      run(c_.program(name), b.slot);
      loss += session_->executor().metric("loss");
      if (accumulates && i + 1 == c_.steps.batches_in(step)) run(c_.program("update"), b.slot);
      loader_->release(b.slot);
    }
    return session_->executor().metric("accepted") > 0 ? loss : std::nan("");
  }

 private:
  void run(size_t program, int slot) {
    session_->executor().stage(program, slot);
    session_->executor().run(program, slot);
    session_->executor().synchronize();
  }

  Dataset dataset_;
  Compiled c_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<data::Loader> loader_;
};

}  // namespace

void judge(LrFind& f) {
  f.suggested.reset();
  const auto& p = f.points;
  if (p.empty()) return;
  const auto lowest = std::ranges::min_element(p, {}, &LrFindPoint::smooth);
  f.lowest = lowest->lr;
  const size_t end = static_cast<size_t>(lowest - p.begin());
  if (!(lowest->smooth < (1 - kFall) * p[0].smooth)) return;
  double steepest = 0;
  for (size_t i = 0; i <= end; ++i) {
    const size_t a = i > kSpan ? i - kSpan : 0, b = std::min(i + kSpan, p.size() - 1);
    const double slope = (p[b].smooth - p[a].smooth) / (std::log(p[b].lr) - std::log(p[a].lr));
    if (slope < steepest) {
      steepest = slope;
      f.suggested = p[i].lr;
    }
  }
}

LrFind find_learning_rate(const Recipe& r, const LrFindOptions& o) {
  LATHE_CHECK(o.steps >= 2 && o.low > 0 && o.low < o.high);
  CompileOptions compile_options = o.compile;
  compile_options.eval = false;
  Sweep sweep(r, compile_options);
  LrFind out;
  double mean = 0, weight = 0, best = 0;
  for (int64_t i = 0; i < o.steps; ++i) {
    const double lr = o.low * std::pow(o.high / o.low, static_cast<double>(i) / static_cast<double>(o.steps - 1));
    const double loss = sweep.step(i, lr);
    if (!std::isfinite(loss)) {
      out.exploded = true;
      break;
    }
    mean = kSmoothing * mean + (1 - kSmoothing) * loss;
    weight = kSmoothing * weight + (1 - kSmoothing);
    out.points.push_back({lr, loss, mean / weight});
    best = i == 0 ? loss : std::min(best, mean / weight);
    if (mean / weight > kExplosion * best) {
      out.exploded = true;
      break;
    }
  }
  judge(out);
  io::PosixFs fs;
  std::string folder = o.out;
  if (o.new_out)
    folder = io::make_new_dir(fs, o.out);
  else
    io::make_dirs(fs, o.out);
  std::string table = "lr\tloss\tsmooth\n";
  io::LineChart chart{"learning rate", "training loss", {{"loss", {}, {}}, {"smoothed", {}, {}}}, true, {}, false};
  for (const LrFindPoint& p : out.points) {
    table += fmt::format("{:.6g}\t{:.6g}\t{:.6g}\n", p.lr, p.loss, p.smooth);
    for (io::Line& l : chart.lines) l.x.push_back(p.lr);
    // What lies far above the picture would press the rest to its floor.
    chart.lines[0].y.push_back(p.loss <= 2 * out.points[0].loss ? p.loss : std::nan(""));
    chart.lines[1].y.push_back(p.smooth <= 2 * out.points[0].loss ? p.smooth : std::nan(""));
  }
  if (out.suggested) chart.marks.push_back({*out.suggested, fmt::format("steepest: {:.2g}", *out.suggested)});
  out.table = io::join_path(folder, "lr_find.tsv");
  out.picture = io::join_path(folder, "lr_find.svg");
  replace_text(fs, out.table, table);
  replace_text(fs, out.picture, io::svg_file(chart));
  return out;
}

}  // namespace lathe
