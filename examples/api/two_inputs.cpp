// A model of two inputs with a custom loop: from a sentence of tokens and three numbers, a price. It is saved,
// opened again, and continues with the same bits at another batch size.
#include <lathe/lathe.h>

#include <cmath>
#include <cstdio>
#include <random>

using namespace lathe;

constexpr int64_t kWords = 50, kLength = 12, kNumbers = 3;

Value price(Net& n, Value words, Value numbers) {
  const Value text = reduce_mean(embedding(n, "words", words, kWords, 16), {1});
  const Value all = concat(Values{text, linear(n, "numbers", numbers, 16)}, 1);
  return linear(n, "price", gelu(linear(n, "hidden", gelu(all), 32)), 1);
}

StepSet make_steps(int64_t batch) {
  StepSet all;
  for (const bool train : {true, false}) {
    Builder b(train ? "train" : "predict");
    Net n(b, train ? Mode::train : Mode::eval);
    const Value words = b.input({DType::i32, {batch, kLength}}, InputKind::batch, "words");
    const Value numbers = b.input({DType::f32, {batch, kNumbers}}, InputKind::batch, "numbers");
    const Value y = price(n, words, numbers);
    if (!train) {
      b.output(y, OutputKind::result, "price");
      merge(all, finish_set(n));
      continue;
    }
    const Value truth = b.input({DType::f32, {batch, 1}}, InputKind::batch, "price");
    const Value error = y - truth;
    b.output(reduce_mean(abs(error), {0, 1}), OutputKind::metric, "distance");  // a custom metric
    merge(all, train_set(n, reduce_mean(square(error), {0, 1}), {.name = "adamw", .weight_decay = 0.01}));
  }
  return all;
}

// Each word is worth something, and so is each number.
void feed_batch(Session& s, int64_t batch, std::mt19937& random, std::vector<float>* truth = nullptr) {
  std::vector<int32_t> words;
  std::vector<float> numbers, prices;
  for (int64_t i = 0; i < batch; ++i) {
    float p = 0;
    for (int64_t k = 0; k < kLength; ++k) {
      words.push_back(static_cast<int32_t>(random() % kWords));
      p += std::sin(static_cast<float>(words.back())) / 4;
    }
    for (int64_t k = 0; k < kNumbers; ++k) {
      numbers.push_back(static_cast<float>(random() % 1000) / 500 - 1);
      p += numbers.back() * static_cast<float>(k);
    }
    prices.push_back(p);
  }
  s.feed("words", words);
  s.feed("numbers", numbers);
  if (truth)
    *truth = prices;
  else
    s.feed("price", prices);
}

int main(int argc, char** argv) try {
  const std::string out = argc > 1 ? argv[1] : "two_inputs";
  std::mt19937 random(1);
  Session session(make_steps(32), {.seed = 1});
  const auto train = [&](Session& s, int64_t batch, int steps, double lr) {
    s.feed("lr", lr);
    for (int i = 0; i < steps; ++i) {
      feed_batch(s, batch, random);
      s.run("train");
      if (s.metric("accepted") == 0) std::printf("step %d was refused\n", i);  // not finite
    }
    return s.metric("distance");
  };
  std::printf("distance after 400 steps of 32: %.3f\n", train(session, 32, 400, 3e-3));
  session.save(out, 400);

  Session again(make_steps(32), {.seed = 2});  // other first values: the checkpoint brings its own
  std::printf("opened again at step %lld\n", static_cast<long long>(again.load(out)));
  const Replanned kept = again.replan(make_steps(128), {});
  std::printf("%zu states kept, %zu new\n", kept.carried.size(), kept.fresh.size());
  std::printf("distance after 200 steps of 128: %.3f\n", train(again, 128, 200, 1e-3));

  std::vector<float> truth;
  feed_batch(again, 128, random, &truth);
  again.run("predict");
  const std::vector<float> prices = again.result("price");
  double error = 0;
  for (size_t i = 0; i < prices.size(); ++i)
    error += std::fabs(prices[i] - truth[i]) / static_cast<double>(prices.size());
  std::printf("new samples: predicted within %.3f\n", error);
  return error < 0.2 ? 0 : 1;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return static_cast<int>(e.exit_code());
}
