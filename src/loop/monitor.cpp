#include "loop/monitor.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include "recipe/eval_metrics.h"

namespace lathe {

Monitor::Monitor(const Recipe& r)
    : higher_(find_eval_metric(r.train.monitor)->higher),
      plateau_(follows_evaluations(r.schedule)),
      min_delta_(r.train.min_delta),
      gamma_(r.schedule.gamma),
      patience_(r.train.patience),
      plateau_patience_(r.schedule.patience) {}

bool Monitor::improves(Track& t, double value, int64_t step) const {
  const double gain = t.best ? (higher_ ? value - *t.best : *t.best - value) : 0;
  if (std::isfinite(value) && (!t.best || (gain > 0 && gain >= min_delta_))) {
    t = {value, step, 0};
    return true;
  }
  ++t.bad;
  return false;
}

bool Monitor::update(double value, int64_t step, bool regular) {
  if (plateau_ && regular && !improves(plateau_track_, value, step) && plateau_track_.bad >= plateau_patience_) {
    plateau_track_.bad = 0;
    factor_before_ = factor_;
    factor_ *= gamma_;
    since_ = step + 1;
  }
  return improves(track_, value, step);
}

namespace {

std::string exact(double v) { return fmt::format("{:a}", v); }

}  // namespace

void Monitor::save(Info& info) const {
  const auto put = [&](const char* prefix, const Track& t) {
    if (t.best) info[fmt::format("{}_best", prefix)] = exact(*t.best);
    info[fmt::format("{}_step", prefix)] = std::to_string(t.step);
    info[fmt::format("{}_bad", prefix)] = std::to_string(t.bad);
  };
  put("monitor", track_);
  if (!plateau_) return;
  put("plateau", plateau_track_);
  info["plateau_factor"] = exact(factor_);
  info["plateau_factor_before"] = exact(factor_before_);
  info["plateau_since"] = std::to_string(since_);
}

void Monitor::load(const Info& info) {
  const auto number = [&](const std::string& key, double& v) {
    if (const auto it = info.find(key); it != info.end()) v = std::strtod(it->second.c_str(), nullptr);
  };
  const auto whole = [&](const std::string& key, int64_t& v) {
    if (const auto it = info.find(key); it != info.end()) v = std::strtoll(it->second.c_str(), nullptr, 10);
  };
  const auto get = [&](const std::string& prefix, Track& t) {
    if (double best = 0; info.count(prefix + "_best")) {
      number(prefix + "_best", best);
      t.best = best;
    }
    whole(prefix + "_step", t.step);
    whole(prefix + "_bad", t.bad);
  };
  get("monitor", track_);
  if (!plateau_) return;
  get("plateau", plateau_track_);
  number("plateau_factor", factor_);
  number("plateau_factor_before", factor_before_);
  whole("plateau_since", since_);
}

}  // namespace lathe
