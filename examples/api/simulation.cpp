// A trained net inside of a simulation: in every step it pushes an inverted pendulum left or right to keep it upright.
#include <lathe/lathe.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <random>

static std::atomic<long> allocations{0};  // of the whole process
void* operator new(size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }

constexpr const char* kRecipe = R"(
  model = { family = "mlp", hidden = [32] }
  optimizer = { name = "adam", lr = 0.01 }
  train = { epochs = 10, batch_size = 50 }
)";

int main(int argc, char** argv) try {
  // What an expert would do: push against the angle that the pendulum will soon have.
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> states(2 * 2000);
  std::vector<int32_t> pushes(2000);
  for (float& v : states) v = uniform(random);
  for (size_t i = 0; i < pushes.size(); ++i) pushes[i] = states[2 * i] + 0.5f * states[2 * i + 1] > 0;
  lathe::TrainOptions options;
  options.out = argc > 1 ? argv[1] : "pendulum";
  options.train_data = lathe::data::array_source(states, {2}, pushes, 2);
  lathe::train(lathe::parse_recipe(kRecipe, "pendulum.toml"), options);

  lathe::Predictor net(options.out, {.sets = {"device.threads=1"}});
  float state[2] = {0.2f, 0}, scores[2], worst = 0;  // angle and angular velocity
  const long before = allocations;
  const auto start = std::chrono::steady_clock::now();
  constexpr int kSteps = 20000;
  for (int i = 0; i < kSteps; ++i) {
    net(state, scores);
    const float push = scores[1] > scores[0] ? -6.0f : 6.0f, dt = 0.005f;
    state[1] += dt * (9.81f * std::sin(state[0]) + push * std::cos(state[0]));
    state[0] += dt * state[1];
    if (i > kSteps / 2) worst = std::fmax(worst, std::fabs(state[0]));
  }
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
  std::printf("%d steps: largest angle %.3f, %.1f us per step, %ld allocations\n", kSteps, static_cast<double>(worst),
              time.count() / kSteps, allocations - before);
  return worst < 0.2f && allocations == before ? 0 : 1;
} catch (const lathe::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return static_cast<int>(e.exit_code());
}
