// TextWriter: continues a text, byte by byte, with the weights of a run. One Program of the model's whole context is
// planned once; a text stands at its front, what follows is padding that causality hides, and the place of the logits
// to read is data. A text longer than the context is seen by its end. Needs no file of the run's data.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "predict/sampling.h"
#include "rundir/open_run.h"

namespace lathe {

class TextWriter {  // A run's model, ready to write.
 public:
  // UserError with Exit::usage where the run's model does not take tokens.
  TextWriter(const std::string& run, const std::vector<std::string>& sets, Which = Which::newest);

  int64_t context() const { return context_; }  // bytes that it sees at once
  int64_t vocab() const { return vocab_; }      // bytes below this number are known

  using OnByte = std::function<void(char)>;  // callback for a byte
  // UserError: the text is empty or has a byte outside of the vocabulary; `name` stands for it in messages.
  void check(const std::string& text, const std::string& name) const;
  // So many bytes that follow `prompt`; on_byte is called with each as it is drawn. UserError as check() has it, or
  // where the outputs of the net are not finite.
  std::string write(const std::string& prompt, int64_t bytes, const Sampling&, const OnByte& on_byte = {},
                    const std::string& name = "--prompt");
  // Of the byte after the text.
  std::vector<double> probabilities(const std::string& text, const std::string& name = "--prompt");

 private:
  std::span<const float> logits_after(const std::string& text);

  int64_t context_ = 0, vocab_ = 0;
  Compiled compiled_;
  size_t program_ = 0;
  std::unique_ptr<Session> session_;
};

// Whether the run's model takes tokens.
bool is_text_run(const std::string& run, const std::vector<std::string>& sets);

}  // namespace lathe
