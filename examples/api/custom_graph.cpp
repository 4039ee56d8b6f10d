// A custom graph on a device, without a recipe: a convolution learns to spell a signal by the CTC loss.
#include <lathe/lathe.h>

#include <cstdio>
#include <random>

using namespace lathe;

constexpr int64_t kBatch = 16, kFrames = 24, kLabels = 4, kClasses = 5;  // class 0: no label

// One step: loss and new weights from samples and old weights.
Graph make_step() {
  Builder b("step");
  const Value x = b.input({DType::f32, {kBatch, kFrames, kClasses}}, InputKind::batch, "x");
  const Value labels = b.input({DType::i32, {kBatch, kLabels}}, InputKind::batch, "labels");
  const Value w1 = b.input({DType::f32, {16, 3, kClasses}}, InputKind::param, "w1");
  const Value w2 = b.input({DType::f32, {kClasses, 1, 16}}, InputKind::param, "w2");
  const Value hidden = leaky_relu(conv1d(x, w1, {.pad_left = 1, .pad_right = 1}));
  const Value scores = log_softmax(conv1d(hidden, w2, {}));
  const auto each = [&](double v) { return full(b, {DType::i32, {kBatch}}, v); };
  const Value loss = reduce_mean(ctc_loss(scores, labels, each(kFrames), each(kLabels)), {0});
  const Values weights{w1, w2}, slopes = grad(loss, weights);
  b.output(loss, OutputKind::metric, "loss");
  for (size_t i = 0; i < slopes.size(); ++i) b.update(weights[i], weights[i] - clamp(slopes[i], -1, 1) * 0.2);
  return b.finish();
}

int main() try {
  Session session(set_of(make_step()));  // its state starts at zero
  std::mt19937 random(1);
  for (const StateSpec& row : session.state()) {
    std::vector<float> first(static_cast<size_t>(row.type.numel()));
    for (float& v : first) v = std::uniform_real_distribution(-0.3F, 0.3F)(random);
    session.write(row.name, first);
  }
  std::vector<float> x(kBatch * kFrames * kClasses);
  std::vector<int32_t> labels(kBatch * kLabels);
  double first = 0, loss = 0;
  for (int step = 0; step < 300; ++step) {
    for (float& v : x) v = std::normal_distribution(0.0F, 0.3F)(random);
    for (size_t i = 0; i < labels.size(); ++i) {  // a label lasts for two frames somewhere in its six
      const size_t label = 1 + random() % (kClasses - 1), frame = i * (kFrames / kLabels) + random() % 4;
      labels[i] = static_cast<int32_t>(label);
      for (const size_t at : {frame, frame + 1}) x[at * kClasses + label] += 2;
    }
    session.feed("x", x);
    session.feed("labels", labels);
    session.run("step");
    loss = session.metric("loss");
    if (step == 0) first = loss;
  }
  std::printf("loss %.2f, after 300 steps %.2f\n", first, loss);
  return loss < 0.1 * first ? 0 : 1;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return static_cast<int>(e.exit_code());
}
