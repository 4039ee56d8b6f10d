// evaluate() and predict(): a finished (or running) run's newest valid checkpoint, used.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <sstream>

#include "data/file.h"
#include "data/idx.h"
#include "data/pnm.h"
#include "train/evaluation.h"
#include "train/run_dir.h"
#include "train/sampling.h"
#include "train/state.h"
#include "train/text_writer.h"
#include "train/trainer.h"

namespace lathe {

Recipe load_run_recipe(const std::string& run, const std::vector<std::string>& sets) {
  io::PosixFs fs;
  const std::string path = io::join_path(run, "recipe.toml");
  if (!io::info_at(fs, path))
    throw UserError(
        fmt::format("{}: not a run directory (no recipe.toml); `lathe train` prints the directory it makes", run),
        Exit::missing_input);
  return parse_recipe(read_text(fs, path), path, sets);
}

namespace {

// A recipe.toml that was edited or emptied describes another network, or other data, than the checkpoint's.
void check_recipe_of(const std::string& run, const io::Manifest& manifest) {
  const auto passes = manifest.info.find("disabled_passes");
  if (passes == manifest.info.end()) return;  // a checkpoint made by other means says nothing
  std::istringstream names(passes->second);
  const std::vector<std::string> disabled{std::istream_iterator<std::string>(names), {}};
  if (recipe_hash(load_run_recipe(run, {}), disabled) == manifest.recipe_hash) return;
  throw UserError(
      fmt::format("{}: is not the recipe that the checkpoint of step {} was trained with; put the original "
                  "back, or override single keys with --set",
                  io::join_path(run, "recipe.toml"), manifest.step));
}

}  // namespace

std::unique_ptr<Executor> open_run(const std::string& run, const Compiled& c, Which which) {
  io::PosixFs fs;
  io::Notes notes;
  const bool best = which == Which::best;
  const auto found =
      io::find_newest_valid(fs, io::join_path(run, best ? kBestFolder : kCheckpointFolder), io::Verify::full, notes);
  for (const std::string& n : notes) fmt::print(stderr, "{}\n", n);
  if (!found)
    throw UserError(
        fmt::format("{}: no valid {}", run,
                    best ? "best checkpoint; training keeps one with checkpoint.best = true" : "checkpoint"),
        Exit::missing_input);
  check_recipe_of(run, found->manifest);
  const DeviceName device = parse_device_name(c.recipe.device.name);
  require_device(device);
  auto e = std::make_unique<Executor>(
      c.set, find_backend(device.backend).open({device.index, static_cast<int>(c.recipe.device.threads)}), c.executor);
  load_state(*e, c.state, fs, found->path, Keep::model);
  return e;
}

EvalResult evaluate(const std::string& run, const std::vector<std::string>& sets, Which which) {
  const Recipe r = load_run_recipe(run, sets);
  const Dataset data = open_dataset(r);
  CompileOptions o;
  o.train = false;
  const Compiled c = compile(r, data.spec, o);
  const auto e = open_run(run, c, which);
  return Evaluation(c, *e, *data.eval).run();
}

namespace {

constexpr int64_t kMaxImageBytes = int64_t{1} << 28;

struct InputImage {
  std::string name;
  std::vector<std::byte> bytes;
};

void add_test_samples(std::vector<InputImage>& out, const std::string& spec, const data::Source& source) {
  const std::string range = spec.substr(5);
  char* end = nullptr;
  const int64_t first = std::strtoll(range.c_str(), &end, 10);
  const int64_t last = *end == '-' ? std::strtoll(end + 1, &end, 10) : first;
  LATHE_USER_CHECK(!range.empty() && *end == '\0' && first >= 0 && last >= first && last < source.size(),
                   "{}: expected test:N or test:A-B with numbers below {}", spec, source.size());
  std::vector<std::vector<std::byte>> fields;
  for (const data::Field& f : source.fields()) fields.emplace_back(static_cast<size_t>(f.type.bytes()));
  std::vector<std::span<std::byte>> spans(fields.begin(), fields.end());
  for (int64_t i = first; i <= last; ++i) {
    source.read(i, spans);
    out.push_back({fmt::format("test:{}", i), fields[0]});
  }
}

void add_idx_images(std::vector<InputImage>& out, const std::string& path, const TensorType& sample) {
  const auto start = data::read_start(path, 2).bytes;
  const bool gzip = start.size() == 2 && start[0] == std::byte{0x1f} && start[1] == std::byte{0x8b};
  const bool idx = start.size() == 2 && start[0] == std::byte{0} && start[1] == std::byte{0};
  LATHE_USER_CHECK(gzip || idx,
                   "{}: expected a binary PGM or PPM image, an IDX file or test:N, got something else; convert it, for "
                   "example with ImageMagick",
                   path);
  const data::IdxArray a = data::parse_idx(data::read_file(path, kMaxImageBytes), path);
  const int64_t n = a.shape.ndim() > 0 ? a.shape[0] : 0, bytes = sample.bytes();
  LATHE_USER_CHECK(n > 0 && a.shape.numel() == n * bytes, "{}: expected images of {}, got an array of {}", path,
                   to_string(sample.shape), to_string(a.shape));
  for (int64_t i = 0; i < n; ++i) {
    const auto* first = reinterpret_cast<const std::byte*>(a.elements()) + i * bytes;
    out.push_back({fmt::format("{}:{}", path, i), {first, first + bytes}});
  }
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
    const std::string text = read_text(fs, path, kMaxImageBytes);
    Prediction p{path, writer.probabilities(text, path), 0, ""};
    p.label = std::ranges::max_element(p.probabilities) - p.probabilities.begin();
    p.text = writer.write(text, tokens, {.temperature = 0}, {}, path);
    out.push_back(std::move(p));
  }
  return out;
}

}  // namespace

std::vector<Prediction> predict(const std::string& run, const std::vector<std::string>& inputs,
                                const std::vector<std::string>& sets, std::optional<int64_t> tokens, Which which) {
  if (is_text_run(run, sets)) return continue_texts(run, inputs, sets, tokens.value_or(64), which);
  if (tokens)
    throw UserError(fmt::format("--tokens: {} classifies images; it is for text models only", run), Exit::usage);
  const Recipe r = load_run_recipe(run, sets);
  const DataSpec spec = describe_data(r);
  if (r.model.family == "unet")
    throw UserError(fmt::format("{}: predicts pixels; its pictures are in report.html (`lathe report {}`)", run, run),
                    Exit::usage);
  CompileOptions o;
  o.train = o.eval = false;
  o.predict = 1;
  const Compiled c = compile(r, spec, o);
  const size_t program = c.program("predict");
  const auto e = open_run(run, c, which);
  std::vector<Prediction> out;
  std::vector<InputImage> samples;
  for (const std::string& input : inputs) {
    if (input.starts_with("test:")) {
      add_test_samples(samples, input, *open_dataset(r).eval);
    } else if (data::is_pnm(data::read_start(input, 2).bytes)) {
      samples.push_back({input, data::read_pnm(input, spec.sample.shape)});
    } else {
      add_idx_images(samples, input, spec.sample);
    }
  }
  for (const InputImage& s : samples) {
    std::memcpy(e->staging(0, "x"), s.bytes.data(), s.bytes.size());
    e->stage(program, 0);
    e->run(program, 0);
    if (c.config.task == Task::regress) {
      Prediction p{s.name, {}, 0, ""};
      for (const float v : as_floats(e->result("logits"))) p.values.push_back(v * spec.units.scale + spec.units.mean);
      out.push_back(std::move(p));
      continue;
    }
    Prediction p{s.name, softmax_of(as_floats(e->result("logits"))), 0, ""};
    p.label = std::ranges::max_element(p.probabilities) - p.probabilities.begin();
    out.push_back(std::move(p));
  }
  return out;
}

}  // namespace lathe
