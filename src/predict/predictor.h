// Predictor: a trained net inside of another program, such as a simulation: one call per step, no allocation, no file.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "compile/compile.h"
#include "rundir/open_run.h"

namespace lathe {

// How a run is opened to predict with it.
struct PredictorOptions {
  int64_t batch = 1;            // samples of each call
  Which which = Which::newest;  // which of the run's checkpoints
  Sets sets = {};               // recipe keys that differ from the run's, such as "device=cpu" or "device.threads=1"
  PipelineOptions passes = {};  // where the run was trained with custom passes
};

class Predictor {  // A run's network, ready to be called.
 public:
  // Reads the checkpoint, plans and allocates: all that can fail. UserError and DeviceError as for evaluate().
  explicit Predictor(const std::string& run, const PredictorOptions& = {});
  Predictor(Predictor&&) noexcept;
  ~Predictor();

  const TensorType& sample() const { return sample_; }  // of one sample: f32 or u8 [H, W, C]
  int64_t batch() const { return batch_; }              // samples of one call
  int64_t outputs() const { return outputs_; }          // numbers that the net gives for one sample

  // `in`: batch() samples, one after another, as the run's source gives them to the net; `out`: batch() times outputs()
  // numbers. By data.target: class: the logits, the largest is the predicted class; value: the numbers in the units of
  // the data, as `lathe predict` prints them; mask: logits of the classes for each pixel; image: the pixels, in [0, 1]
  // but for errors. With an embedding (train.loss): its numbers, of length 1. Allocates nothing on
  // `cpu` (drivers of `opencl` may, and the interpreter behind `ref` does), and keeps no lock when it returns; one call
  // at a time. UserError where the sizes or the type of the samples do not fit, or it was moved from.
  void operator()(std::span<const float> in, std::span<float> out);
  void operator()(std::span<const uint8_t> in, std::span<float> out);  // the same for nets that take pixels

 private:
  void run(DType given, std::span<const std::byte> in, std::span<float> out);

  TensorType sample_;
  int64_t batch_ = 0, outputs_ = 0;
  size_t program_ = 0;
  bool scaled_ = false;  // outputs are numbers in these units
  data::LabelUnits units_;
  std::unique_ptr<Session> session_;
};

}  // namespace lathe
