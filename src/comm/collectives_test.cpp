// Collectives under planted faults; without them: contract_test.h.
#include "comm/collectives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "base/error.h"
#include "base/stopwatch.h"
#include "comm/measure_link.h"
#include "comm/threads.h"

namespace lathe::comm {
namespace {

template <class T>
std::span<std::byte> bytes_of(std::vector<T>& v) {
  return std::as_writable_bytes(std::span(v));
}

// f on a thread for each rank. What they threw, by rank; "died" of a rank that dies.
std::vector<std::string> on_ranks(int ranks, const ThreadOptions& options, const std::function<void(Group&)>& f) {
  const auto groups = thread_groups(ranks, options);
  std::vector<std::string> errors(groups.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < groups.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        f(*groups[r]);
      } catch (const RankDied&) {
        errors[r] = "died";
      } catch (const CommError& e) {
        errors[r] = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  return errors;
}

// Tensors of any sizes in a list have the bits of their concatenation, in place and apart; inputs apart stay.
TEST(Collectives, ListsAreConcatenations) {
  const std::vector<std::vector<size_t>> lists{{5}, {1, 1, 1}, {0, 3, 0, 40}, {100, 1, 33, 2}, {16, 16, 16}, {7, 300}};
  for (const int ranks : {1, 2, 3, 5})
    for (const auto& sizes : lists)
      for (const bool in_place : {true, false}) {
        const auto errors = on_ranks(ranks, {}, [&](Group& g) {
          Collectives c(g, 64);
          std::vector<std::vector<float>> in, out;
          std::vector<float> whole;
          for (const size_t size : sizes) {
            std::vector<float> t(size);
            for (float& v : t)
              v = std::sin(static_cast<float>(whole.size() * 3 + static_cast<size_t>(g.rank()))), whole.push_back(v);
            in.push_back(t);
            out.push_back(std::vector<float>(size));
          }
          const auto before = in;
          std::vector<InOut> list;
          for (size_t i = 0; i < sizes.size(); ++i)
            list.push_back({bytes_of(in[i]).data(), bytes_of(in_place ? in[i] : out[i]).data(),
                            static_cast<int64_t>(4 * sizes[i])});
          c.all_reduce(list, DType::f32);
          c.all_reduce(bytes_of(whole), DType::f32);
          std::vector<float> joined;
          for (const auto& t : in_place ? in : out) joined.insert(joined.end(), t.begin(), t.end());
          EXPECT_EQ(joined, whole) << ranks << " ranks";
          if (!in_place) {
            EXPECT_EQ(in, before);
          }
        });
        for (const std::string& e : errors) EXPECT_EQ(e, "");
      }
}

// Scratch memory that is lent is enough, and none of it is written beyond.
TEST(Collectives, LentScratch) {
  for (const Flow& flow : {kFastFlow, kSlowFlow})
    for (const int64_t size : {int64_t{1}, int64_t{1000}, int64_t{40'000}, 3 * kFastFlow.chunk})
      on_ranks(3, {}, [&](Group& g) {
        g.set_flow(flow);
        const auto need = static_cast<size_t>(Collectives::scratch_for(4 * size, 4, 3));
        EXPECT_LE(need, 8 * static_cast<size_t>(kFastFlow.chunk));
        std::vector<std::byte> scratch(need + 64, std::byte{7});
        Collectives c(g, std::span(scratch).first(need));
        std::vector<float> a(static_cast<size_t>(size / 2), 1.0f), b(static_cast<size_t>(size - size / 2), 2.0f);
        const InOut list[] = {{bytes_of(a).data(), bytes_of(a).data(), static_cast<int64_t>(4 * a.size())},
                              {bytes_of(b).data(), bytes_of(b).data(), static_cast<int64_t>(4 * b.size())}};
        c.all_reduce(list, DType::f32);
        for (const float v : a) ASSERT_EQ(v, 3.0f);
        for (const float v : b) ASSERT_EQ(v, 6.0f);
        for (size_t i = need; i < scratch.size(); ++i) ASSERT_EQ(scratch[i], std::byte{7});
      });
}

// Late messages, of any seed, change nothing.
TEST(Collectives, LateMessages) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    ThreadOptions o;
    o.faults = {.seed = seed, .delay = 0.3, .longest = 2e-4};
    o.checksums = true;
    const int ranks = 2 + static_cast<int>(seed % 3);
    const auto errors = on_ranks(ranks, o, [&](Group& g) {
      Collectives c(g, 64);
      for (int round = 0; round < 3; ++round) {
        std::vector<float> data(57, static_cast<float>(g.rank()));
        c.all_reduce(bytes_of(data), DType::f32);
        for (const float v : data) ASSERT_EQ(v, static_cast<float>(ranks * (ranks - 1) / 2));
        c.barrier();
      }
    });
    for (const std::string& e : errors) EXPECT_EQ(e, "") << seed;
  }
}

// A message that is lost, a rank that dies: every other rank ends, with the two ends of a message in the text.
TEST(Collectives, LostMessagesAndDeadRanksEndAll) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const int ranks = 2 + static_cast<int>(seed % 3);
    ThreadOptions o;
    o.timeout = 0.05;
    if (seed % 2)
      o.faults = {.seed = seed, .drop = 0.02};
    else
      o.faults = {.dying = static_cast<int>(seed / 2) % ranks, .dies_after = static_cast<int64_t>(seed)};
    const auto errors = on_ranks(ranks, o, [&](Group& g) {
      Collectives c(g, 64);
      for (int round = 0; round < 200; ++round) {
        std::vector<float> data(57, 1.0f);
        c.all_reduce(bytes_of(data), DType::f32);
        for (const float v : data) ASSERT_EQ(v, static_cast<float>(ranks)) << seed;
      }
    });
    std::string text;
    for (const std::string& e : errors)
      if (e != "died" && !e.empty()) text = e;
    ASSERT_NE(text, "") << seed;
    EXPECT_NE(text.find("rank "), std::string::npos) << text;
    for (const std::string& e : errors)
      EXPECT_TRUE(e == text || e == "died" || (seed % 2 && e.empty())) << seed << ": " << e;
  }
}

TEST(Collectives, AFlippedBitIsFound) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    ThreadOptions o;
    o.checksums = true;
    o.faults = {.seed = seed, .flip = 0.05};
    const auto errors = on_ranks(3, o, [&](Group& g) {
      Collectives c(g, 64);
      for (int round = 0; round < 100; ++round) {
        std::vector<float> data(57, 1.0f);
        c.all_reduce(bytes_of(data), DType::f32);
        for (const float v : data) ASSERT_EQ(v, 3.0f) << seed;
      }
    });
    for (const std::string& e : errors) EXPECT_NE(e.find("another checksum"), std::string::npos) << seed << ": " << e;
  }
}

// What a rank sends is what costs say (base/traffic.h): the most that any of them does.
TEST(Collectives, SendWhatTrafficSays) {
  for (const int ranks : {1, 2, 3, 4, 6, 8})
    for (const int64_t bytes : {4, 240, 8192, 9600}) {
      std::vector<int64_t> sent(static_cast<size_t>(ranks));
      on_ranks(ranks, {}, [&](Group& g) {
        Collectives c(g);
        std::vector<float> data(static_cast<size_t>(bytes / 4));
        c.all_reduce(bytes_of(data), DType::f32);
        sent[static_cast<size_t>(g.rank())] = c.sent_bytes();
      });
      EXPECT_EQ(static_cast<double>(*std::ranges::max_element(sent)), sum_traffic(bytes, ranks).bytes)
          << bytes << " bytes on " << ranks << " ranks";
    }
}

std::vector<LinkRates> links_of(int ranks, const ThreadOptions& options = {}) {
  std::vector<LinkRates> out(static_cast<size_t>(ranks));
  const auto errors = on_ranks(ranks, options, [&](Group& g) { out[static_cast<size_t>(g.rank())] = measure_link(g); });
  for (const std::string& e : errors) EXPECT_EQ(e, "");
  return out;
}

TEST(Collectives, AMeasuredLinkIsTheSameOnAllRanks) {
  for (const int ranks : {1, 2, 3, 8}) {
    const Stopwatch start;
    const std::vector<LinkRates> rates = links_of(ranks);
    RecordProperty(fmt::format("{}_ranks_us", ranks), static_cast<int>(1e6 * start.seconds()));
    for (const LinkRates& r : rates) {
      EXPECT_EQ(r.latency, rates[0].latency);
      EXPECT_EQ(r.bandwidth, rates[0].bandwidth);
      EXPECT_EQ(r.latency > 0, ranks > 1);
      EXPECT_EQ(r.bandwidth > 0, ranks > 1);
    }
    RecordProperty(fmt::format("{}_ranks_ns", ranks), static_cast<int>(1e9 * rates[0].latency));
    RecordProperty(fmt::format("{}_ranks_MB_per_s", ranks), static_cast<int>(1e-6 * rates[0].bandwidth));
  }
}

// Every message comes up to 2 ms late.
TEST(Collectives, ASlowLinkIsMeasuredAsSlow) {
  ThreadOptions late;
  late.faults = {.seed = 3, .delay = 1, .longest = 2e-3};
  const LinkRates slow = links_of(3, late)[0];
  EXPECT_GT(slow.latency, 2e-4);
  EXPECT_GT(slow.bandwidth, 0);
}

}  // namespace
}  // namespace lathe::comm
