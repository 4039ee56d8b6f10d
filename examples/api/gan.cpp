// Two networks that train against each other on Fashion-MNIST: a generator draws pictures from noise, a discriminator
// tells them from real ones (Goodfellow et al., 2014). Two optimizers, a custom loop, a picture of samples.
#include <lathe/lathe.h>

#include <cstdio>
#include <random>

using namespace lathe;

constexpr int64_t kBatch = 64, kNoise = 64, kPixels = 28 * 28;

Value generator(Net& n, Value noise) {
  const Value h = relu(batch_norm(n, "g.norm1", linear(n, "g.fc1", noise, 256)));
  const Value h2 = relu(batch_norm(n, "g.norm2", linear(n, "g.fc2", h, 512)));
  return tanh(linear(n, "g.fc3", h2, kPixels));
}

Value discriminator(Net& n, Value pixels) {
  const Value h = leaky_relu(linear(n, "d.fc1", pixels, 512), 0.2);
  return linear(n, "d.fc3", leaky_relu(linear(n, "d.fc2", h, 256), 0.2), 1);
}

// Mean of -log p where p = sigmoid(x) is the probability of what x should be.
Value should_be(Value x, bool real) { return reduce_mean(softplus(real ? neg(x) : x), {0, 1}); }

// "discriminate" trains d on a real and a drawn batch, "generate" trains g to fool it, "sample" draws.
StepSet make_steps() {
  const OptimizerConfig adam{.name = "adam", .beta1 = 0.5};
  const auto of = [](char who) { return [who](const StateSpec& s) { return s.name[0] == who; }; };
  StepSet all;
  for (const std::string name : {"discriminate", "generate", "sample"}) {
    Builder b(name);
    Net n(b, name == "sample" ? Mode::eval : Mode::train);
    const Value drawn = generator(n, b.input({DType::f32, {kBatch, kNoise}}, InputKind::batch, "noise"));
    if (name == "discriminate") {
      const Value real = b.input({DType::f32, {kBatch, kPixels}}, InputKind::batch, "real");
      const Value loss = should_be(discriminator(n, real), true) + should_be(discriminator(n, drawn), false);
      merge(all, train_set(n, loss, adam, {.scope = "d", .trained = of('d')}));
    } else if (name == "generate") {
      merge(all, train_set(n, should_be(discriminator(n, drawn), true), adam, {.scope = "g", .trained = of('g')}));
    } else {
      b.output(drawn, OutputKind::result, "drawn");
      merge(all, finish_set(n, of('g')));
    }
  }
  return all;
}

int main(int argc, char** argv) try {
  const std::string out = argc > 1 ? argv[1] : "gan";
  const int steps = argc > 2 ? std::atoi(argv[2]) : 600;
  const Recipe recipe = parse_recipe("data = { source = \"fashion_mnist\" }", "gan.toml");
  const Dataset data = open_dataset(recipe);
  Session session(make_steps(), {.options = PassOptions().set(ClipNormOptions{5}), .seed = 1});
  session.feed("lr", 2e-4);

  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> noise(kBatch * kNoise), real(kBatch * kPixels);
  std::vector<std::byte> image(kPixels), label(4);
  const auto draw = [&] {
    for (float& v : noise) v = normal(random);
    session.feed("noise", noise);
  };
  double d = 0, g = 0;
  for (int step = 1; step <= steps; ++step) {
    for (int64_t i = 0; i < kBatch; ++i) {
      data.train->read(static_cast<int64_t>(random() % static_cast<uint64_t>(data.spec.train)),
                       std::vector{std::span(image), std::span(label)});
      for (int64_t k = 0; k < kPixels; ++k)
        real[static_cast<size_t>(i * kPixels + k)] = static_cast<float>(image[static_cast<size_t>(k)]) / 127.5F - 1;
    }
    session.feed("real", real);
    draw();
    session.run("discriminate");
    d = session.metric("loss");
    draw();
    session.run("generate");
    g = session.metric("loss");
    if (step % 100 == 0) std::printf("step %d: discriminator %.3f, generator %.3f\n", step, d, g);
  }
  session.save(out + "/checkpoints", steps);

  draw();
  session.run("sample");
  const std::vector<float> drawn = session.result("drawn");
  std::vector<uint8_t> sheet(8 * 8 * kPixels);  // eight rows of eight
  for (size_t i = 0; i < sheet.size(); ++i) {
    const size_t tile = i / kPixels, y = i % kPixels / 28, x = i % 28;
    sheet[(tile / 8 * 28 + y) * 8 * 28 + tile % 8 * 28 + x] = static_cast<uint8_t>((drawn[i] + 1) * 127.5F);
  }
  io::replace_file(out + "/samples.png", io::encode_png(sheet, 8 * 28, 8 * 28, 1));
  std::printf("%s/samples.png\n", out.c_str());
  return std::isfinite(d) && d < 1.38 && g > 0.5 ? 0 : 1;  // each does better than guessing: 2 log 2 and less
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return static_cast<int>(e.exit_code());
}
