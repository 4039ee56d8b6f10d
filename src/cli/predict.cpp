// lathe predict: classes, values or pictures of samples, or a text that a model continues.
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>

#include "cli/command.h"

namespace lathe::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxPromptBytes = int64_t{1} << 28;

struct PredictOptions {
  std::string run, device, out;
  std::vector<std::string> inputs, sets;
  std::optional<std::string> prompt;
  std::optional<int64_t> tokens, top_k, seed;
  std::optional<double> temperature, top_p;
  bool json = false, best = false;

  std::vector<std::string> all_sets() const { return with_device(sets, device); }
  Which which() const { return best ? Which::best : Which::newest; }
};

void print_json(const Json& j) { fmt::print("{}\n", j.dump(2, ' ', false, Json::error_handler_t::replace)); }

// Straight to the reader: the text is shown as it is written. main() knows what a reader that went away means.
void put(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw std::system_error(errno, std::generic_category());
}

void write_texts(const PredictOptions& o) {
  struct Prompt {
    std::string name, text;
  };
  if (!o.out.empty())
    throw UserError(fmt::format("--out: {} writes text, to the standard output; it is for pictures", o.run),
                    Exit::usage);
  for (const std::string& input : o.inputs)
    if (input.starts_with("test:") || input.starts_with("validation:"))
      throw UserError(
          fmt::format("{}: {} writes text: expected --prompt TEXT, or a text file to continue", input, o.run),
          Exit::usage);
  std::vector<Prompt> prompts;
  if (o.prompt) prompts.push_back({"--prompt", *o.prompt});
  for (const std::string& path : o.inputs) prompts.push_back({path, io::read_file(path, kMaxPromptBytes)});
  Sampling sampling;
  if (o.temperature) sampling.temperature = *o.temperature;
  if (o.top_k) sampling.top_k = *o.top_k;
  if (o.top_p) sampling.top_p = *o.top_p;
  if (o.seed) sampling.seed = static_cast<uint64_t>(*o.seed);
  check_sampling(sampling);
  const int64_t tokens = o.tokens.value_or(prompts.size() == 1 && o.prompt ? 500 : 64);
  TextWriter writer(o.run, o.all_sets(), o.which());
  for (const Prompt& p : prompts) writer.check(p.text, p.name);
  Json all = Json::array();
  for (const Prompt& p : prompts) {
    bool begun = false;
    const auto show = [&](char byte) {
      if (o.json) return;
      if (!begun) put((o.prompt ? "" : p.name + ": ") + p.text);
      begun = true;
      put(std::string(1, byte));
    };
    const Stopwatch start;
    const std::string text = writer.write(p.text, tokens, sampling, show, p.name);
    const double seconds = start.seconds();
    if (!o.json) {
      put("\n");
      continue;
    }
    const std::vector<double> first = writer.probabilities(p.text, p.name);
    all.push_back({{"input", p.name},
                   {"prompt", p.text},
                   {"text", text},  // bytes that are no UTF-8 are shown as U+FFFD
                   {"bytes", std::vector<uint8_t>(text.begin(), text.end())},
                   {"tokens", tokens},
                   {"temperature", sampling.temperature},
                   {"top_k", sampling.top_k},
                   {"top_p", sampling.top_p},
                   {"seed", sampling.seed},
                   {"context", writer.context()},
                   {"tokens_per_second", static_cast<double>(tokens) / seconds},
                   {"first_probabilities", first}});
  }
  if (o.json) print_json(all);
}

// A file name for the picture of an input, which no other picture has: "dir/cat.png" becomes "cat-mask.png".
class PictureNames {
 public:
  explicit PictureNames(std::string suffix) : suffix_(std::move(suffix)) {}

  std::string next(const std::string& input) {
    std::string name = input.substr(input.rfind('/') + 1);  // npos + 1 is 0
    for (const char* extension : {".png", ".pgm", ".ppm"})
      if (name.ends_with(extension)) name.resize(name.size() - 4);
    for (char& c : name)
      if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-' && c != '_') c = '-';
    std::string file = fmt::format("{}-{}.png", name, suffix_);
    for (int64_t number = 2; !used_.insert(file).second; ++number)
      file = fmt::format("{}-{}-{}.png", name, number, suffix_);
    return file;
  }

 private:
  std::string suffix_;
  std::set<std::string> used_;
};

// Of the classes that are there.
std::string shares_text(const std::vector<double>& shares) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < shares.size(); ++i)
    if (shares[i] > 0) parts.push_back(fmt::format("class {} {:.1f} %", i, 100 * shares[i]));
  return fmt::format("{}", fmt::join(parts, ", "));
}

// One prediction as a row of the table and as JSON; `picture`: where it was written.
std::string row_of(const Prediction& p, const std::string& picture) {
  if (!picture.empty()) return p.shares.empty() ? picture : fmt::format("{}  {}", picture, shares_text(p.shares));
  if (!p.values.empty()) return fmt::format("{:>12.6g}", fmt::join(p.values, " "));
  return fmt::format("class {:<4} {:5.1f} %{}", p.label, 100 * p.probabilities[static_cast<size_t>(p.label)],
                     p.name.empty() ? "" : "  " + p.name);
}

Json json_of(const Prediction& p, const std::string& picture) {
  Json j{{"input", p.input}};
  if (!picture.empty()) {
    j["picture"] = picture;
    if (!p.shares.empty()) j["shares"] = p.shares;
  } else if (!p.values.empty()) {
    j["values"] = p.values;
  } else {
    j["label"] = p.label;
    if (!p.name.empty()) j["name"] = p.name;
    j["probability"] = p.probabilities[static_cast<size_t>(p.label)];
    j["probabilities"] = p.probabilities;
  }
  return j;
}

void predict_samples(const PredictOptions& o) {
  const auto refuse = [&](bool given, const char* option) {
    if (given)
      throw UserError(fmt::format("{}: {} writes no text; it is for text models only", option, o.run), Exit::usage);
  };
  refuse(o.prompt.has_value(), "--prompt");
  refuse(o.tokens.has_value(), "--tokens");
  refuse(o.temperature.has_value(), "--temperature");
  refuse(o.top_k.has_value(), "--top-k");
  refuse(o.top_p.has_value(), "--top-p");
  refuse(o.seed.has_value(), "--seed");
  const data::LabelKind target = label_kind_of(load_run_recipe(o.run, o.all_sets()));
  const bool pixels = target == data::LabelKind::mask || target == data::LabelKind::image;
  if (!o.out.empty() && !pixels)
    throw UserError(fmt::format("--out: {} predicts no pictures; it is for data.target = \"mask\" or \"image\"", o.run),
                    Exit::usage);
  const std::vector<Prediction> all = predict(o.run, o.inputs, o.all_sets(), {}, o.which());
  const std::string folder = o.out.empty() ? o.run + "/predictions" : o.out;
  if (pixels) io::make_folder(folder);
  PictureNames names{std::string(name_of(target))};
  size_t width = 0;
  for (const Prediction& p : all) width = std::max(width, p.input.size());
  Json list = Json::array();
  for (const Prediction& p : all) {
    std::string picture;
    if (!p.picture.empty()) {
      picture = fmt::format("{}/{}", folder, names.next(p.input));
      io::replace_file(picture, p.picture);
    }
    if (o.json)
      list.push_back(json_of(p, picture));
    else
      fmt::print("{:<{}}  {}\n", p.input, std::min<size_t>(width, 60), row_of(p, picture));
  }
  if (o.json) print_json(list);
}

}  // namespace

void add_predict(CLI::App& app, int&) {
  auto o = std::make_shared<PredictOptions>();
  CLI::App* cmd =
      app.add_subcommand("predict", "Classes, values or pictures of samples, or a text that the model continues");
  cmd->add_option("RUN", o->run, "Run directory")->required();
  cmd->add_option(
      "INPUT", o->inputs,
      "PNG, PGM or PPM image, IDX, .npy or .npz file of samples; csv or tsv file where the run's data are one, "
      "with or without the column to predict; test:N or test:A-B (of the run's test set; validation:N of its "
      "validation set); text models: a "
      "text file to continue");
  cmd->add_option("--out", o->out,
                  "Masks and images: folder for the pictures, one PNG file per sample; default: RUN/predictions")
      ->type_name("DIR");
  cmd->add_option("--prompt", o->prompt, "Text models: the text to continue; the answer is shown as it is written")
      ->type_name("TEXT");
  cmd->add_option("--tokens", o->tokens, "Text models: bytes to write; default: 500 after --prompt, 64 after a file")
      ->check(whole_number(1, 1 << 20));
  cmd->add_option("--temperature", o->temperature,
                  "Text models: below 1 likely bytes are taken more often, 0: always the most likely; default: 0.8");
  cmd->add_option("--top-k", o->top_k, "Text models: only the K most likely bytes; default: 0, all of them")
      ->check(whole_number(0));
  cmd->add_option("--top-p", o->top_p, "Text models: only the fewest bytes that together have this probability");
  cmd->add_option("--seed", o->seed, "Text models: equal seeds write equal texts; default: 0")->check(whole_number(0));
  cmd->add_option("--set", o->sets, "Override a recipe key")->type_name("KEY=VALUE")->take_all()->expected(1);
  add_device_option(*cmd, o->device, "default: the run's");
  cmd->add_flag("--best", o->best, "The checkpoint of the best evaluation (checkpoint.best), not the newest");
  cmd->add_flag("--json", o->json, "Print the result as JSON");
  cmd->footer(
      "Example: lathe predict runs/fashion_mnist-20260101-120000 test:0-9\n"
      "         lathe predict runs/diamonds-20260101-120000 new.csv --json\n"
      "         lathe predict runs/clipart_unet-20260101-120000 drawing.png --out masks\n"
      "         lathe predict runs/shakespeare-20260101-120000 --prompt \"KING.\" --temperature 0.7 --top-p 0.95 "
      "--seed 3");
  cmd->callback([o] {
    if (o->inputs.empty() && !o->prompt)
      throw UserError("predict: expected an INPUT, or --prompt for a text model, got neither", Exit::usage);
    if (is_text_run(o->run, o->all_sets()))
      write_texts(*o);
    else
      predict_samples(*o);
  });
}

}  // namespace lathe::cli
