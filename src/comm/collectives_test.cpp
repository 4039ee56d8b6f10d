#include "comm/collectives.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <thread>

#include "base/error.h"
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

double value(int rank, size_t i) { return static_cast<double>((rank + 1) * static_cast<int>(i % 17)) - 3; }

constexpr size_t kSizes[] = {0, 1, 2, 3, 7, 64, 1000, 4099};

// Small integers: sums are exact in every type, whatever their order.
template <class T>
void expect_all_reduce(int ranks, size_t size, DType type) {
  const auto errors = on_ranks(ranks, {}, [&](Group& g) {
    Collectives c(g, 64);  // many chunks
    for (const Reduce how : {Reduce::sum, Reduce::max, Reduce::min}) {
      std::vector<T> data(size);
      for (size_t i = 0; i < size; ++i) data[i] = static_cast<T>(value(g.rank(), i));
      c.all_reduce(bytes_of(data), type, how);
      for (size_t i = 0; i < size; ++i) {
        double expected = value(0, i);
        for (int r = 1; r < ranks; ++r)
          expected = how == Reduce::sum   ? expected + value(r, i)
                     : how == Reduce::max ? std::max(expected, value(r, i))
                                          : std::min(expected, value(r, i));
        ASSERT_EQ(static_cast<double>(data[i]), expected) << ranks << " ranks, " << i << " of " << size;
      }
    }
  });
  for (const std::string& e : errors) EXPECT_EQ(e, "");
}

TEST(Collectives, AllReduce) {
  for (const int ranks : {1, 2, 3, 4, 5, 8})
    for (const size_t size : kSizes) {
      expect_all_reduce<float>(ranks, size, DType::f32);
      expect_all_reduce<int64_t>(ranks, size, DType::i64);
    }
  expect_all_reduce<double>(3, 100, DType::f64);
  expect_all_reduce<int32_t>(3, 100, DType::i32);
  expect_all_reduce<Half>(3, 101, DType::f16);
  expect_all_reduce<BFloat16>(3, 101, DType::bf16);
}

TEST(Collectives, EveryRankHasTheSameBits) {
  for (const int ranks : {2, 3, 4, 7}) {
    std::vector<std::vector<float>> results(static_cast<size_t>(ranks));
    on_ranks(ranks, {}, [&](Group& g) {
      std::vector<float>& data = results[static_cast<size_t>(g.rank())];
      for (size_t i = 0; i < 999; ++i)
        data.push_back(std::sin(static_cast<float>(i * 7 + static_cast<size_t>(g.rank()))));
      Collectives(g, 64).all_reduce(bytes_of(data), DType::f32);
    });
    for (const auto& r : results) EXPECT_EQ(std::memcmp(r.data(), results[0].data(), 999 * 4), 0) << ranks;
  }
}

TEST(Collectives, NanIsNotLost) {
  for (const Reduce how : {Reduce::sum, Reduce::max, Reduce::min})
    for (const int sick : {0, 1, 2})
      on_ranks(3, {}, [&](Group& g) {
        std::vector<float> data(5, 1.0f);
        if (g.rank() == sick) data[3] = NAN;
        Collectives(g).all_reduce(bytes_of(data), DType::f32, how);
        EXPECT_TRUE(std::isnan(data[3]));
        EXPECT_FALSE(std::isnan(data[2]));
      });
}

TEST(Collectives, ScatterGatherBroadcastBarrier) {
  for (const int ranks : {1, 2, 3, 5, 8})
    for (const size_t size : kSizes)
      for (int root = 0; root < ranks; root += 2) {
        std::atomic<int> arrived{0};
        const auto errors = on_ranks(ranks, {}, [&](Group& g) {
          Collectives c(g, 64);
          const auto n = static_cast<int64_t>(size);
          const Part mine = c.part(n, g.rank());
          std::vector<int32_t> data(size);
          for (size_t i = 0; i < size; ++i) data[i] = static_cast<int32_t>(i) * (g.rank() + 1);
          c.reduce_scatter(bytes_of(data), DType::i32);
          for (int64_t i = mine.first; i < mine.last; ++i)
            ASSERT_EQ(data[static_cast<size_t>(i)], i * ranks * (ranks + 1) / 2) << i;
          for (int64_t i = 0; i < n; ++i)
            if (i < mine.first || i >= mine.last) data[static_cast<size_t>(i)] = -1;
          c.all_gather(bytes_of(data), size_of(DType::i32));
          for (int64_t i = 0; i < n; ++i) ASSERT_EQ(data[static_cast<size_t>(i)], i * ranks * (ranks + 1) / 2) << i;
          for (auto& v : data) v = g.rank() == root ? v + 1 : 0;
          c.broadcast(bytes_of(data), root);
          for (int64_t i = 0; i < n; ++i) ASSERT_EQ(data[static_cast<size_t>(i)], i * ranks * (ranks + 1) / 2 + 1) << i;
          ++arrived;
          c.barrier();
          EXPECT_EQ(arrived, ranks);
        });
        for (const std::string& e : errors) EXPECT_EQ(e, "");
      }
}

// The bytes that the header promises.
TEST(Collectives, BytesOnTheWire) {
  for (const int ranks : {1, 2, 4, 5})
    on_ranks(ranks, {}, [&](Group& g) {
      std::vector<float> data(1000 * static_cast<size_t>(ranks));
      Collectives c(g, 512);
      c.all_reduce(bytes_of(data), DType::f32);
      EXPECT_EQ(c.sent_bytes(), 2 * 4 * 1000 * (ranks - 1));
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

TEST(Collectives, RanksThatDisagreeAreNamed) {
  const auto errors = on_ranks(2, {}, [&](Group& g) {
    std::vector<float> data(g.rank() == 0 ? 10u : 12u);
    Collectives(g).all_reduce(bytes_of(data), DType::f32);
  });
  for (const std::string& e : errors)
    EXPECT_NE(e.find("the ranks do not run the same program"), std::string::npos) << e;
}

TEST(Groups, AbortEndsWhoWaits) {
  const auto errors = on_ranks(3, {}, [&](Group& g) {
    if (g.rank() == 1) return g.abort("rank 1: the disk is full");
    std::byte b{};
    Message m = g.receive(1, 0, {&b, 1});
    g.wait(m);
  });
  EXPECT_EQ(errors, (std::vector<std::string>{"rank 1: the disk is full", "", "rank 1: the disk is full"}));
}

TEST(Groups, EmptyMessagesArrive) {
  const auto errors = on_ranks(2, {}, [&](Group& g) {
    Message m = g.rank() == 0 ? g.send(1, 5, {}) : g.receive(0, 5, {});
    g.wait(m);
  });
  EXPECT_EQ(errors, (std::vector<std::string>{"", ""}));
}

TEST(Groups, MessagesOfATagStayInOrder) {
  on_ranks(2, {}, [&](Group& g) {
    std::array<int, 8> numbers{};
    std::array<Message, 8> messages;
    if (g.rank() == 0) {
      for (int i = 0; i < 8; ++i) {
        numbers[static_cast<size_t>(i)] = 10 + i;
        messages[static_cast<size_t>(i)] =
            g.send(1, i % 2, std::as_bytes(std::span(&numbers[static_cast<size_t>(i)], 1)));
      }
    } else {
      for (const int i : {1, 3, 0, 2, 4, 5, 6, 7})
        messages[static_cast<size_t>(i)] =
            g.receive(0, i % 2, std::as_writable_bytes(std::span(&numbers[static_cast<size_t>(i)], 1)));
    }
    for (Message& m : messages) g.wait(m);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(numbers[static_cast<size_t>(i)], 10 + i);
  });
}

}  // namespace
}  // namespace lathe::comm
