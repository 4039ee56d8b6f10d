// What evaluation finds, of a run at work or of one that is opened for it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/world.h"
#include "rundir/open_run.h"

namespace lathe {

// What is known of the predictions for a set. Which numbers there are depends on data.target.
struct EvalResult {                       // What evaluation found.
  data::Split split = data::Split::test;  // of which set
  double loss = 0;                        // mean over samples or tokens
  double accuracy = 0;                    // of classes, tokens or pixels; NaN where there are none
  std::optional<double> perplexity;       // of tokens, where the loss is their entropy: e to it
  std::optional<double> iou;  // mask: mean over the classes of what prediction and truth share, of both together
  // value: root of the mean square of the error, in the data's units; with several numbers per sample, which may be of
  // different units, over all of them, each in deviations of its column
  std::optional<double> rmse;
  std::optional<double> mae;  // value: mean size of the error, in the same units
  // value: part of the variance that is explained; the mean as a guess has 0. Of several numbers per sample: of the
  // variance of all, to which each column standardised by itself adds alike
  std::optional<double> r2;
  std::optional<double> psnr;        // image: of the output against the image without noise, in dB, over all pixels
  std::optional<double> input_psnr;  // the same of the input
  int64_t samples = 0;               // seen
  double seconds = 0;                // it took
  std::string warning;               // classes without a sample in the set; of evaluate() alone

  // f(name, value) for each that there is, but the loss.
  template <class F>
  void each(F&& f) const {
    if (!rmse && !psnr) f("accuracy", accuracy);
    const std::pair<const char*, const std::optional<double>&> others[] = {
        {"perplexity", perplexity}, {"iou", iou}, {"rmse", rmse}, {"mae", mae}, {"r2", r2}, {"psnr", psnr},
        {"input_psnr", input_psnr}};
    for (const auto& [name, value] : others)
      if (value) f(name, *value);
  }
};

struct EvalOptions {                      // What is evaluated.
  std::vector<std::string> sets = {};     // keys of the run's recipe that are other ones now
  Which which = Which::newest;            // checkpoint
  std::optional<data::Split> split = {};  // none: the test set, or the validation set where there is no test set
  comm::Group* group = nullptr;           // ranks that divide the samples; every one calls and has the result
};

// A checkpoint of a run on one of its sets. UserError (missing_input): there is no such set; (bad_recipe): `sets` would
// hold other samples out than training did.
EvalResult evaluate(const std::string& run, const EvalOptions& = {});
EvalResult evaluate_on_ranks(const std::string& run, const EvalOptions&, int ranks);       // threads of this process
EvalResult evaluate_in(comm::World&, const std::string& run, const EvalOptions& options);  // processes of a launcher

}  // namespace lathe
