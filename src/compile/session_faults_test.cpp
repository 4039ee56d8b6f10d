// Whole trainings on ranks that are threads, under planted faults: whatever a seed does to their messages, every rank
// ends in time, with the bits of an undisturbed run or with an error that names a rank, and what the first rank kept
// leads to those bits when it is continued.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>
#include <variant>

#include "base/error.h"
#include "base/part.h"
#include "base/philox.h"
#include "comm/threads.h"
#include "compile/rank_sessions.h"
#include "nn/layers.h"
#include "nn/step/train_set.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "passes/bucket.h"
#include "passes/partition/blocks.h"
#include "passes/partition/shard_state.h"
#include "passes/techniques/clip_norm.h"
#include "session/session.h"

namespace lathe::session_faults_test {
namespace {

constexpr int64_t kSamples = kRankSamples;
constexpr int kSteps = 4, kKept = 2;  // the state after step kKept is kept, as a checkpoint is
constexpr double kTimeout = 0.1;      // of a message, where some are lost
constexpr double kMargin = 15;        // seconds beyond it in which all ranks have to end, on a machine with other work

StepSet steps() { return two_layers({.name = "adam"}); }

// Of what ranks do in a step: sums, gathers, parts of the state, blocks; in several messages or few.
constexpr int kSetups = 6;
PassOptions options_of(int setup) {
  PassOptions o;
  if (setup == 1) o.set(ClipNormOptions{0.1});
  if (setup >= 2 && setup <= 4) o.set(ShardOptions{.level = setup - 1, .least = 1});
  if (setup == 5) o.set(SameBitsOptions{true, 8});
  if (setup % 2 == 0) o.set(BucketOptions{.bytes = {64}});
  return o;
}

using Values = std::variant<std::vector<float>, std::vector<int32_t>, std::vector<int64_t>>;
using State = std::map<std::string, Values>;

State read_all(Session& s) {
  State out;
  for (const StateSpec& row : s.state()) {
    if (row.type.dtype == DType::i32)
      out[row.name] = s.read<int32_t>(row.name);
    else if (row.type.dtype == DType::i64)
      out[row.name] = s.read<int64_t>(row.name);
    else
      out[row.name] = s.read<float>(row.name);
  }
  return out;
}

void write_all(Session& s, const State& state) {
  for (const auto& entry : state) std::visit([&](const auto& values) { s.write(entry.first, values); }, entry.second);
}

struct Kept {  // What the first rank wrote last.
  int step = 0;
  State state;
};

struct Trained {
  std::vector<double> losses;  // of all steps, of runs that were continued the last ones; then of the evaluation
  State state;
};

bool is_end_of(const Trained& part, const Trained& whole) {
  return part.state == whole.state && part.losses.size() <= whole.losses.size() &&
         std::equal(part.losses.rbegin(), part.losses.rend(), whole.losses.rbegin());
}

Trained train(comm::Group& group, int setup, const Kept& from, Kept* kept) {
  const PassOptions options = options_of(setup);
  const Part own = part_of(kSamples, options.get<SameBitsOptions>().used(), group.size(), group.rank());
  SessionOptions o;
  o.threads = 1;
  o.seed = 3;
  o.options = options;
  o.group = &group;
  Session s(steps(), o);
  if (from.step > 0) write_all(s, from.state);
  Trained trained;
  for (int step = from.step; step < kSteps; ++step) {
    feed_samples(s, own, step);
    s.feed("lr", 0.01);
    s.run("train");
    trained.losses.push_back(s.metric("loss"));
    if (step + 1 != kKept) continue;
    Kept now{step + 1, read_all(s)};
    if (kept && group.rank() == 0) *kept = std::move(now);
  }
  s.run("eval");
  trained.losses.push_back(s.metric("loss"));
  trained.state = read_all(s);
  return trained;
}

struct Ended {        // How a rank did.
  bool died = false;  // as planted
  std::string error;  // a CommError
  std::string other;  // an error that it should not have
  Trained trained;    // where it has none of them
  bool is_well() const { return !died && error.empty() && other.empty(); }
};

struct Outcome {  // Of all ranks.
  std::vector<Ended> ranks;
  Kept kept;
  double seconds = 0;
};

// Ends the program where a rank does not end: its thread cannot be ended otherwise.
Outcome run(int ranks, int setup, const comm::ThreadOptions& options, const Kept& from = {}) {
  const auto start = std::chrono::steady_clock::now();
  const auto groups = comm::thread_groups(ranks, options);
  Outcome out;
  out.ranks.resize(groups.size());
  std::mutex mutex;
  std::condition_variable changed;
  size_t ended = 0;
  std::vector<std::thread> threads;
  for (size_t r = 0; r < groups.size(); ++r)
    threads.emplace_back([&, r] {
      Ended& own = out.ranks[r];
      try {
        own.trained = train(*groups[r], setup, from, &out.kept);
      } catch (const comm::RankDied&) {
        own.died = true;
      } catch (const CommError& e) {
        own.error = e.what();
      } catch (const std::exception& e) {
        own.other = e.what();
        groups[r]->abort(e.what());
      }
      const std::lock_guard lock(mutex);
      ++ended;
      changed.notify_all();
    });
  {
    std::unique_lock lock(mutex);
    if (!changed.wait_for(lock, std::chrono::duration<double>(options.timeout + 4 * kMargin),
                          [&] { return ended == groups.size(); })) {
      std::fprintf(stderr, "seed %llu: %zu of %zu ranks hang\n", static_cast<unsigned long long>(options.faults.seed),
                   groups.size() - ended, groups.size());
      std::abort();
    }
  }
  for (std::thread& t : threads) t.join();
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

enum class Kind { delays, drops, crash, flips, all };
constexpr int kKinds = 5;

comm::ThreadOptions faults_of(Kind kind, uint64_t seed, int ranks) {
  const CounterRng random(seed, 41, 0, 0);
  comm::ThreadOptions o;
  o.faults.seed = seed;
  o.faults.delay = kind == Kind::delays ? 0.2 : 0.05;
  o.faults.longest = 5e-4;
  if (kind == Kind::delays) return o;
  o.timeout = kTimeout;
  o.checksums = kind == Kind::flips || kind == Kind::all;
  // Of some hundred messages in all.
  const double chance = kind == Kind::all ? 0.003 : 0.006;
  if (kind == Kind::drops || kind == Kind::all) o.faults.drop = chance;
  if (kind == Kind::flips || kind == Kind::all) o.faults.flip = chance;
  if (kind == Kind::crash || (kind == Kind::all && seed % 2)) {
    o.faults.dying = static_cast<int>(random.below(0, static_cast<uint64_t>(ranks)));
    o.faults.dies_after = static_cast<int64_t>(random.below(1, 150));
  }
  return o;
}

TEST(SessionFaults, EverySeedEndsWell) {
  const uint64_t seeds = std::getenv("LATHE_ALL") ? 1000 : 60;
  std::map<std::pair<int, int>, Trained> undisturbed;  // by ranks and setup
  int failed[kKinds] = {}, died = 0, continued = 0;
  double longest = 0;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const auto kind = static_cast<Kind>(seed % kKinds);
    const int ranks = 2 + static_cast<int>(seed / kKinds % 4), setup = static_cast<int>(seed / kKinds % kSetups);
    SCOPED_TRACE(fmt::format("seed {}: kind {}, {} ranks, setup {}", seed, static_cast<int>(kind), ranks, setup));
    const auto [at, is_new] = undisturbed.try_emplace({ranks, setup});
    if (is_new) {
      const Outcome whole = run(ranks, setup, {});
      for (const Ended& e : whole.ranks) ASSERT_TRUE(e.is_well()) << e.error << e.other;
      at->second = whole.ranks[0].trained;
      for (const Ended& e : whole.ranks) ASSERT_TRUE(is_end_of(e.trained, at->second));
    }
    const comm::ThreadOptions options = faults_of(kind, seed, ranks);
    const Outcome found = run(ranks, setup, options);
    longest = std::max(longest, found.seconds);
    EXPECT_LT(found.seconds, (kind == Kind::delays ? 0 : kTimeout) + kMargin);
    bool is_well = true;
    for (size_t r = 0; r < found.ranks.size(); ++r) {
      const Ended& e = found.ranks[r];
      is_well = is_well && e.is_well();
      died += e.died;
      EXPECT_EQ(e.other, "") << "rank " << r;
      EXPECT_TRUE(!e.died || static_cast<int>(r) == options.faults.dying);
      if (e.is_well()) {
        EXPECT_EQ(e.trained.losses.size(), static_cast<size_t>(kSteps + 1));
        EXPECT_TRUE(is_end_of(e.trained, at->second)) << "rank " << r << " has other bits";
      } else if (!e.died) {
        EXPECT_NE(e.error.find("rank "), std::string::npos) << e.error;
      }
    }
    EXPECT_TRUE(is_well || kind != Kind::delays);
    failed[static_cast<int>(kind)] += !is_well;
    if (is_well || found.kept.step == 0) continue;
    // Continued from what was kept.
    ++continued;
    for (const Ended& e : run(ranks, setup, {}, found.kept).ranks) {
      ASSERT_TRUE(e.is_well()) << e.error << e.other;
      EXPECT_TRUE(is_end_of(e.trained, at->second));
      EXPECT_EQ(e.trained.losses.size(), static_cast<size_t>(kSteps - kKept + 1));
    }
  }
  std::printf(
      "%d seeds: of each kind %d; ended by drops %d, by a death %d, by flips %d, by any of them %d; %d ranks "
      "died; %d were continued; the longest took %.2f s\n",
      static_cast<int>(seeds), static_cast<int>(seeds) / kKinds, failed[1], failed[2], failed[3], failed[4], died,
      continued, longest);
  // The seeds plant something: most runs have a fault, and in some of them something was kept before.
  const int each = static_cast<int>(seeds) / kKinds;
  for (int k = 1; k < kKinds; ++k) EXPECT_GT(failed[k], each / 3) << "kind " << k;
  EXPECT_GT(died, each / 3);
  EXPECT_GT(continued, each / 4);
}

}  // namespace
}  // namespace lathe::session_faults_test
