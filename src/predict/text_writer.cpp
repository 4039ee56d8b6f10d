#include "predict/text_writer.h"

#include <algorithm>
#include <cstring>

#include "recipe/recipe_keys.h"
#include "recipe/sources/source.h"

namespace lathe {
namespace {

Recipe text_recipe(const std::string& run, const std::vector<std::string>& sets) {
  Recipe r = load_run_recipe(run, sets);
  if (!takes_tokens(r))
    throw UserError(
        fmt::format("{}: its model ({}) reads images, not text; give it pictures or test:N", run, r.model.family),
        Exit::usage);
  return r;
}

}  // namespace

bool is_text_run(const std::string& run, const std::vector<std::string>& sets) {
  const Recipe r = load_run_recipe(run, sets);
  const auto tokens = token_input(r.model);
  return tokens && tokens->label_each;
}

TextWriter::TextWriter(const std::string& run, const std::vector<std::string>& sets, Which which) {
  const Recipe r = text_recipe(run, sets);
  const TokenInput tokens = token_input(r.model).value();
  context_ = sequence_of(r);
  vocab_ = tokens.vocab;
  DataSpec spec;
  spec.sample = {DType::i32, {context_}};
  spec.classes = vocab_;
  CompileOptions o;
  o.train = o.eval = false;
  o.predict = 1;
  o.passes = passes_of_run(run, which);
  compiled_ = compile(r, spec, o);
  program_ = compiled_.program("predict");
  session_ = open_run(run, compiled_, which);
}

void TextWriter::check(const std::string& text, const std::string& name) const {
  LATHE_USER_CHECK(!text.empty(), "{}: is empty; a text model needs at least one byte to continue from", name);
  for (size_t i = 0; i < text.size(); ++i)
    LATHE_USER_CHECK(static_cast<uint8_t>(text[i]) < vocab_,
                     "{}: the byte {} at {} is outside of the model's vocabulary, which ends at {}", name,
                     static_cast<uint8_t>(text[i]), i, vocab_ - 1);
}

std::span<const float> TextWriter::logits_after(const std::string& text) {
  const auto used = static_cast<size_t>(std::min<int64_t>(context_, static_cast<int64_t>(text.size())));
  auto* ids = reinterpret_cast<int32_t*>(session_->executor().staging(0, "x"));
  std::fill_n(ids, context_, 0);
  for (size_t i = 0; i < used; ++i) ids[i] = static_cast<uint8_t>(text[text.size() - used + i]);
  session_->executor().stage(program_, 0);
  session_->executor().run(program_, 0);
  const auto all = session_->executor().result("logits");
  const auto row = static_cast<size_t>(vocab_);
  return {reinterpret_cast<const float*>(all.data()) + (used - 1) * row, row};
}

std::string TextWriter::write(const std::string& prompt, int64_t bytes, const Sampling& sampling, const OnByte& on_byte,
                              const std::string& name) {
  check_sampling(sampling);
  check(prompt, name);
  std::string text = prompt;
  for (int64_t i = 0; i < bytes; ++i) {
    const auto next = static_cast<char>(sample_token(logits_after(text), sampling, static_cast<uint64_t>(i)));
    text += next;
    if (on_byte) on_byte(next);
  }
  return text.substr(prompt.size());
}

std::vector<double> TextWriter::probabilities(const std::string& text, const std::string& name) {
  check(text, name);
  return softmax_of(logits_after(text));
}

}  // namespace lathe
