// evaluate() and predict(): a finished (or running) run's newest valid checkpoint, used.
#include "predict/predict.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <sstream>

#include "base/checked.h"
#include "io/page/png.h"
#include "loop/evaluation.h"
#include "nn/step/loss.h"
#include "predict/sampling.h"
#include "predict/text_writer.h"
#include "rundir/run_data.h"
#include "rundir/run_dir.h"
#include "session/state.h"
#include "workload/pixels.h"

namespace lathe {

namespace {

constexpr int64_t kMaxPromptFileBytes = int64_t{1} << 28;

// The set that an input like "test:3" names, if it does.
std::optional<data::Split> set_named_by(const std::string& input) {
  for (const data::Split split : {data::Split::validation, data::Split::test})
    if (input.starts_with(std::string(data::to_string(split)) + ":")) return split;
  return {};
}

// "train:0-3" is no file that somebody forgot, but a set that nothing is predicted of.
void check_no_set(const std::string& input) {
  const size_t colon = input.find(':');
  if (colon == input.npos || colon == 0 || colon + 1 == input.size() ||
      input.find_first_not_of("0123456789-", colon + 1) != input.npos || std::filesystem::exists(input))
    return;
  throw UserError(fmt::format("{}: expected a file, or samples of a set: test:N, test:A-B, validation:N or "
                              "validation:A-B, got \"{}\"",
                              input, input.substr(0, colon)),
                  Exit::usage);
}

data::Samples samples_of_set(const std::string& spec, const data::Source& source) {
  const std::string set = spec.substr(0, spec.find(':')), range = spec.substr(set.size() + 1);
  char* end = nullptr;
  const int64_t first = std::strtoll(range.c_str(), &end, 10);
  const int64_t last = *end == '-' ? std::strtoll(end + 1, &end, 10) : first;
  LATHE_USER_CHECK(!range.empty() && *end == '\0' && first >= 0 && last >= first && last < source.size(),
                   "{}: expected {}:N or {}:A-B with numbers below {}", spec, set, set, source.size());
  std::vector<std::vector<std::byte>> fields;
  for (const data::Field& f : source.fields()) fields.emplace_back(static_cast<size_t>(f.type.bytes()));
  std::vector<std::span<std::byte>> spans(fields.begin(), fields.end());
  data::Samples out{source.fields()[0].type, {}, {}};
  for (int64_t i = first; i <= last; ++i) {
    source.read(i, spans);
    out.bytes.insert(out.bytes.end(), fields[0].begin(), fields[0].end());
    out.names.push_back(fmt::format("{}:{}", set, i));
  }
  return out;
}

std::span<const float> as_floats(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

std::vector<Prediction> continue_texts(const std::string& run, const std::vector<std::string>& paths,
                                       const std::vector<std::string>& sets, int64_t tokens, Which which) {
  TextWriter writer(run, sets, which);
  io::PosixFs fs;
  std::vector<Prediction> out;
  for (const std::string& path : paths) {
    const std::string text = read_text(fs, path, kMaxPromptFileBytes);
    Prediction p{path, writer.probabilities(text, path), 0, ""};
    p.label = std::ranges::max_element(p.probabilities) - p.probabilities.begin();
    p.text = writer.write(text, tokens, {.temperature = 0}, {}, path);
    out.push_back(std::move(p));
  }
  return out;
}

// The class of each pixel as grey.
void paint_mask(Prediction& p, std::span<const float> logits, const Compiled& c) {
  const int64_t h = c.data.sample.shape[0], w = c.data.sample.shape[1], classes = c.config.model.classes;
  std::vector<uint8_t> pixels(static_cast<size_t>(h * w));
  p.shares.assign(static_cast<size_t>(classes), 0);
  for (int64_t i = 0; i < h * w; ++i) {
    const int64_t label = class_of_pixel(logits, i, classes);
    p.shares[static_cast<size_t>(label)] += 1.0 / static_cast<double>(h * w);
    pixels[static_cast<size_t>(i)] = grey_of_class(label, classes);
  }
  p.picture = io::encode_png(pixels, h, w, 1);
}

void paint_image(Prediction& p, std::span<const float> output, const Compiled& c) {
  const Shape& s = c.data.sample.shape;
  LATHE_USER_CHECK(s[2] == 1 || s[2] == 3 || s[2] == 4,
                   "predict: expected images of 1, 3 or 4 channels to write as pictures, got {}", s[2]);
  std::vector<uint8_t> pixels(output.size());
  std::ranges::transform(output, pixels.begin(), byte_of_pixel);
  p.picture = io::encode_png(pixels, s[0], s[1], s[2]);
}

Prediction prediction_of(std::span<const float> output, const Compiled& c, const std::vector<std::string>& names) {
  Prediction p;
  switch (c.config.task) {
    case Task::classify:
      // Binary cross entropy asks for each class by itself.
      if (loss_of(c.config.loss, c.config.task).info.each_class)
        for (const float v : output) p.probabilities.push_back(1 / (1 + std::exp(-static_cast<double>(v))));
      else
        p.probabilities = softmax_of(output);
      p.label = std::ranges::max_element(p.probabilities) - p.probabilities.begin();
      if (const auto at = static_cast<size_t>(p.label); at < names.size()) p.name = names[at];
      break;
    case Task::regress:
      for (size_t i = 0; i < output.size(); ++i)
        p.values.push_back(output[i] * c.data.units.scale_of(i) + c.data.units.mean_of(i));
      break;
    case Task::embed: p.values.assign(output.begin(), output.end()); break;
    case Task::segment: paint_mask(p, output, c); break;
    case Task::restore: paint_image(p, output, c); break;
  }
  return p;
}

constexpr int64_t kMostAtOnce = 64;  // more make predictions no faster

// For so many samples: with a batch as evaluation has it, smaller where memory asks for it.
Compiled compile_prediction(const Recipe& r, const DataSpec& spec, const PipelineOptions& passes, int64_t samples) {
  CompileOptions o;
  o.train = o.eval = false;
  o.passes = passes;
  const int64_t evaluated = r.train.eval_batch > 0 ? r.train.eval_batch : r.train.batch_size;
  for (o.predict = std::min({samples, evaluated, kMostAtOnce});; o.predict = ceil_div(o.predict, 2)) {
    try {
      return compile(r, spec, o);
    } catch (const DeviceError&) {
      if (o.predict == 1) throw;
    }
  }
}

// Collects samples and computes with as many at once as its Program takes; what is left of the last batch is computed,
// too, and thrown away.
class BatchOfPredictions {
 public:
  BatchOfPredictions(const std::string& run, const Recipe& r, const RunData& data, int64_t samples, Which which,
                     std::vector<Prediction>& out)
      : run_(run),
        names_(data.preparation.names),
        out_(out),
        c_(compile_prediction(r, data.spec, passes_of_run(run, which), samples)),
        program_(c_.program("predict")),
        bytes_(static_cast<size_t>(data.spec.sample.bytes())),
        session_(open_run(run, c_, which)) {
    for (const Port& p : c_.set.programs[program_].inputs)
      if (p.name == "x") batch_ = static_cast<size_t>(p.type.bytes()) / bytes_;
    std::memset(session_->executor().staging(0, "x"), 0, batch_ * bytes_);
  }

  void add(const data::Samples& samples, size_t index) {
    std::memcpy(session_->executor().staging(0, "x") + waiting_.size() * bytes_, samples.bytes.data() + index * bytes_,
                bytes_);
    waiting_.push_back(samples.names[index]);
    if (waiting_.size() == batch_) finish();
  }

  void finish() {
    if (waiting_.empty()) return;
    session_->executor().stage(program_, 0);
    session_->executor().run(program_, 0);
    const std::span<const float> outputs = as_floats(session_->executor().result("logits"));
    const size_t each = outputs.size() / batch_;
    for (size_t i = 0; i < waiting_.size(); ++i) {
      const std::span<const float> own = outputs.subspan(i * each, each);
      for (const float v : own)
        LATHE_USER_CHECK(std::isfinite(v),
                         "{}: the net of {} gives {}, which is no prediction; its weights are not finite or too large: "
                         "look at the losses (`lathe runs`), take another checkpoint (--best), or train with a lower "
                         "optimizer.lr or with train.clip_norm",
                         waiting_[i], run_, v);
      out_.push_back(prediction_of(own, c_, names_));
      out_.back().input = std::move(waiting_[i]);
    }
    waiting_.clear();
  }

 private:
  const std::string& run_;
  const std::vector<std::string>& names_;
  std::vector<Prediction>& out_;
  const Compiled c_;
  size_t program_, bytes_, batch_ = 0;
  std::unique_ptr<Session> session_;
  std::vector<std::string> waiting_;  // names of the samples that are staged
};

}  // namespace

std::vector<Prediction> predict(const std::string& run, const std::vector<std::string>& inputs,
                                const std::vector<std::string>& sets, std::optional<int64_t> tokens, Which which) {
  if (is_text_run(run, sets)) return continue_texts(run, inputs, sets, tokens.value_or(64), which);
  if (tokens) throw UserError(fmt::format("--tokens: {} writes no text; it is for text models only", run), Exit::usage);
  const Recipe r = load_run_recipe(run, sets);
  const RunData data = load_run_data(run, r);
  const auto read = [&](const std::string& input) {
    const auto split = set_named_by(input);
    if (!split) check_no_set(input);
    if (!split) return read_samples(r, data.preparation, data.spec.sample, input);
    const Dataset opened = open_dataset(r);
    return samples_of_set(input, set_of_run(run, r, opened, *split));
  };
  std::vector<Prediction> out;
  std::optional<BatchOfPredictions> batch;
  for (const std::string& input : inputs) {
    const data::Samples samples = read(input);
    // Each of the other inputs has a sample at least.
    if (!batch) batch.emplace(run, r, data, static_cast<int64_t>(samples.names.size() + inputs.size() - 1), which, out);
    for (size_t i = 0; i < samples.names.size(); ++i) batch->add(samples, i);
  }
  if (batch) batch->finish();
  return out;
}

}  // namespace lathe
