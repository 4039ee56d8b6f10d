#include "predict/predictor.h"

#include <cstring>

#include "rundir/run_data.h"

namespace lathe {

Predictor::Predictor(const std::string& run, const PredictorOptions& o) : batch_(o.batch) {
  LATHE_USER_CHECK(o.batch > 0, "Predictor: expected a batch of at least 1 sample, got {}", o.batch);
  const Recipe r = load_run_recipe(run, o.sets);
  const DataSpec data = load_run_data(run, r).spec;
  CompileOptions options;
  options.train = options.eval = false;
  options.predict = o.batch;
  options.passes = passes_of_run(run, o.which, o.passes);
  const Compiled c = compile(r, data, options);
  sample_ = data.sample;
  scaled_ = c.config.task == Task::regress;
  units_ = data.units;
  program_ = c.program("predict");
  for (const Port& p : c.set.programs[program_].outputs)
    if (p.name == "logits") outputs_ = p.type.numel() / o.batch;
  session_ = open_run(run, c, o.which);
}

Predictor::Predictor(Predictor&&) noexcept = default;
Predictor::~Predictor() = default;

void Predictor::operator()(std::span<const float> in, std::span<float> out) { run(DType::f32, std::as_bytes(in), out); }

void Predictor::operator()(std::span<const uint8_t> in, std::span<float> out) {
  run(DType::u8, std::as_bytes(in), out);
}

void Predictor::run(DType given, std::span<const std::byte> in, std::span<float> out) {
  LATHE_USER_CHECK(session_, "Predictor: expected one that holds a run, got one that was moved from");
  LATHE_USER_CHECK(given == sample_.dtype, "Predictor: expected samples of {}, got {}", to_string(sample_.dtype),
                   to_string(given));
  LATHE_USER_CHECK(static_cast<int64_t>(in.size()) == batch_ * sample_.bytes(),
                   "Predictor: expected {} samples of {}, got {} elements", batch_, to_string(sample_),
                   static_cast<int64_t>(in.size()) / size_of(given));
  LATHE_USER_CHECK(static_cast<int64_t>(out.size()) == batch_ * outputs_,
                   "Predictor: expected room for {} times {} numbers, got {}", batch_, outputs_, out.size());
  std::memcpy(session_->executor().staging(0, "x"), in.data(), in.size());
  session_->executor().stage(program_, 0);
  session_->executor().run(program_, 0);
  const std::span<const std::byte> logits = session_->executor().result("logits");
  LATHE_CHECK(logits.size() == out.size_bytes(), "{} bytes of logits for {}", logits.size(), out.size_bytes());
  std::memcpy(out.data(), logits.data(), logits.size());
  if (!scaled_) return;
  const auto each = static_cast<size_t>(outputs_);
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>(out[i] * units_.scale_of(i % each) + units_.mean_of(i % each));
}

}  // namespace lathe
