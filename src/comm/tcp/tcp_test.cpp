#include "comm/tcp/tcp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "base/philox.h"
#include "comm/collectives.h"
#include "comm/contract_test.h"
#include "comm/control/test_controls.h"

namespace lathe::comm {
namespace {

// f on a thread for each rank, with groups that live as long as it. What they threw, by rank.
std::vector<std::string> on_tcp(int ranks, const TcpOptions& options,
                                const std::function<void(std::unique_ptr<Group>)>& f) {
  auto groups = tcp_groups(ranks, options);
  std::vector<std::string> errors(groups.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < groups.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        f(std::move(groups[r]));
      } catch (const CommError& e) {
        errors[r] = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  return errors;
}

std::vector<std::byte> pattern(size_t size, int seed) {
  std::vector<std::byte> out(size);
  constexpr size_t kPeriod = 251;
  for (size_t i = 0; i < std::min(size, kPeriod); ++i)
    out[i] = static_cast<std::byte>(i * 31 + static_cast<size_t>(seed) * 7);
  for (size_t have = kPeriod; have < size; have *= 2) std::memcpy(&out[have], &out[0], std::min(have, size - have));
  return out;
}

bool is_same(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {  // fast, in builds that are not
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

// Far more than any socket holds, from all to all at once, in any order of receives; with all tags.
TEST(Tcp, AllSendAtOnce) {
  for (const bool checksums : {false, true}) {
    const auto errors = on_tcp(3, {.timeout = 20, .checksums = checksums}, [&](std::unique_ptr<Group> g) {
      constexpr size_t kSize = 5 << 20;
      std::vector<std::vector<std::byte>> out, in;
      std::vector<Message> messages;
      for (int r = 0; r < 3; ++r)
        for (int k = 0; k < 2; ++k) {
          out.push_back(pattern(kSize + static_cast<size_t>(k), 10 * g->rank() + r + k));
          in.emplace_back(kSize + static_cast<size_t>(k));
        }
      for (int r = 0; r < 3; ++r)
        for (int k = 0; k < 2; ++k) {
          const auto i = static_cast<size_t>(2 * r + k);
          messages.push_back(g->receive(r, 0, in[i]));
          messages.push_back(g->send(r, 0, out[i]));
        }
      for (size_t i = messages.size(); i-- > 0;) g->wait(messages[i]);
      for (int r = 0; r < 3; ++r)
        for (int k = 0; k < 2; ++k)
          EXPECT_TRUE(is_same(in[static_cast<size_t>(2 * r + k)],
                              pattern(kSize + static_cast<size_t>(k), 10 * r + g->rank() + k)));
    });
    for (const std::string& e : errors) EXPECT_EQ(e, "");
  }
}

// A tag that nobody has asked for yet does not hold up another one.
TEST(Tcp, TagsDoNotWaitForEachOther) {
  for (const size_t size : {0u, 1u, 5u << 20}) {
    const auto errors = on_tcp(2, {.timeout = 20}, [&](std::unique_ptr<Group> g) {
      const auto a = pattern(size, 1), b = pattern(7, 2);
      if (g->rank() == 0) {
        Message ma = g->send(1, 3, a), mb = g->send(1, 2, b), mc = g->send(1, 3, b);
        g->wait(ma), g->wait(mb), g->wait(mc);
      } else {
        std::vector<std::byte> in_a(size), in_b(7), in_c(7);
        Message mb = g->receive(0, 2, in_b);
        g->wait(mb);
        EXPECT_EQ(in_b, b);
        Message ma = g->receive(0, 3, in_a), mc = g->receive(0, 3, in_c);
        g->wait(mc), g->wait(ma);
        EXPECT_TRUE(is_same(in_a, a));
        EXPECT_EQ(in_c, b);
      }
    });
    for (const std::string& e : errors) EXPECT_EQ(e, "");
  }
}

// Random programs: every pair, sizes, tags, kinds of waiting; as many messages under way as are allowed.
TEST(Tcp, RandomMessages) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const int ranks = 2 + static_cast<int>(seed % 3);
    const auto size_of_message = [&](int from, int to, int i) {
      const CounterRng random(seed, static_cast<uint32_t>(from * 16 + to), 0, 0);
      const auto k = static_cast<uint64_t>(i);
      return static_cast<size_t>(random.below(2 * k, random.below(2 * k + 1, 4) == 0 ? 300000 : 300));
    };
    const auto errors = on_tcp(ranks, {.timeout = 20, .checksums = seed % 2 == 0}, [&](std::unique_ptr<Group> g) {
      const CounterRng random(seed, 99 + static_cast<uint32_t>(g->rank()), 0, 0);
      for (int round = 0; round < 3; ++round) {
        std::vector<std::vector<std::byte>> out, in, expected;
        std::vector<Message> messages;
        for (int i = 0; i < Group::kInFlight; ++i)
          for (int r = 0; r < ranks; ++r) {
            out.push_back(pattern(size_of_message(g->rank(), r, i), i + round));
            expected.push_back(pattern(size_of_message(r, g->rank(), i), i + round));
            in.emplace_back(expected.back().size());
          }
        for (size_t i = 0; i < out.size(); ++i) {
          const int r = static_cast<int>(i) % ranks, tag = static_cast<int>(i) / ranks % Group::kTags;
          messages.push_back(g->send(r, tag, out[i]));
          messages.push_back(g->receive(r, tag, in[i]));
        }
        for (size_t i = messages.size(); i-- > 1;) std::swap(messages[i], messages[random.below(i, i + 1)]);
        for (Message& m : messages)
          if (random.uniform(1000) < 0.5)
            g->wait(m);
          else
            while (!g->test(m)) std::this_thread::yield();
        EXPECT_TRUE(std::equal(in.begin(), in.end(), expected.begin(), expected.end(), is_same));
      }
    });
    for (const std::string& e : errors) EXPECT_EQ(e, "") << seed;
  }
}

TEST(Tcp, TimeoutNamesBothEnds) {
  const auto errors = on_tcp(2, {.timeout = 0.2}, [&](std::unique_ptr<Group> g) {
    std::byte b{};
    if (g->rank() == 0) {
      Message m = g->receive(1, 4, {&b, 1});
      g->wait(m);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(400));
      g->send(0, 4, {&b, 1});
      Message m = g->receive(0, 4, {&b, 1});
      g->wait(m);
    }
  });
  for (const std::string& e : errors)
    EXPECT_EQ(e,
              "rank 0 waited 0.2 s to receive 1 bytes from rank 1 (tag 4); is that rank alive, and does it take part?");
}

TEST(Tcp, ARankThatIsGoneIsNamed) {
  const auto errors = on_tcp(3, {.timeout = 20}, [&](std::unique_ptr<Group> g) {
    if (g->rank() == 1) return g.reset();
    std::byte b{};
    Message m = g->receive(1, 0, {&b, 1});
    g->wait(m);
  });
  EXPECT_NE(errors[0].find("rank 1 is gone"), std::string::npos) << errors[0];
  EXPECT_NE(errors[2].find("rank 1 is gone"), std::string::npos) << errors[2];
}

// What a rank sent before it ended in good order arrives, and its end is no failure for those who need nothing of it.
TEST(Tcp, AnOrderlyEndIsNoFailure) {
  const auto errors = on_tcp(3, {.timeout = 20}, [&](std::unique_ptr<Group> g) {
    auto data = pattern(1 << 20, 1);
    std::vector<std::byte> in(data.size());
    if (g->rank() == 1) {
      Message m = g->send(0, 0, data);
      g->wait(m);
      return g.reset();
    }
    Message m = g->rank() == 0 ? g->receive(1, 0, in) : g->receive(0, 0, in);
    g->wait(m);
    EXPECT_TRUE(is_same(in, data));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (g->rank() == 0) {
      m = g->send(2, 0, in);
      g->wait(m);
      m = g->receive(2, 1, in);
    } else {
      m = g->send(0, 1, in);
    }
    g->wait(m);
  });
  for (const std::string& e : errors) EXPECT_EQ(e, "");
}

// abort() from another thread ends a wait, here and on all ranks, also in the middle of large messages.
TEST(Tcp, AbortFromAnotherThread) {
  for (const size_t size : {1u, 32u << 20}) {
    const auto errors = on_tcp(3, {.timeout = 20}, [&](std::unique_ptr<Group> g) {
      std::thread other;
      if (g->rank() == 1)
        other = std::thread([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
          g->abort("rank 1: the disk is full");
        });
      const auto out = pattern(size, 1);
      std::vector<std::byte> in(size);
      Message s, r;
      try {
        s = g->send((g->rank() + 1) % 3, 0, out);
        r = g->receive((g->rank() + 1) % 3, 1, in);  // of which nobody sends
        g->wait(r);
      } catch (...) {
        if (other.joinable()) other.join();
        throw;
      }
    });
    EXPECT_EQ(errors[1], "rank 1: the disk is full");
    for (const std::string& e : errors) EXPECT_NE(e, "");
    for (const std::string& e : errors) EXPECT_TRUE(size > 1 || e == "rank 1: the disk is full") << e;
  }
}

TEST(Tcp, KeepsTheContract) {
  for (const contract::Case& c : contract::kCases)
    for (const int ranks : {1, 2, 4}) {
      if (c.error && ranks == 1) continue;
      const auto groups = tcp_groups(ranks, {.timeout = c.timeout});
      for (const std::string& e : errors_of(c, groups))
        EXPECT_TRUE(c.error ? e.find(c.error) != std::string::npos : e.empty())
            << c.name << " on " << ranks << " ranks: " << e;
    }
}

TEST(Tcp, OverAControlChannel) {
  for (const int ranks : {1, 4}) {
    const auto errors = on_controls(ranks, {.timeout = 20}, [&](Control& control) {
      const auto group = tcp_group(control);
      Collectives all(*group);
      std::vector<float> data(100000, static_cast<float>(control.rank()));
      all.at(all.label("all_reduce of x")).all_reduce(std::as_writable_bytes(std::span(data)), DType::f32);
      for (const float v : data) ASSERT_EQ(v, static_cast<float>(ranks * (ranks - 1) / 2));
      EXPECT_EQ(control.position().read().label, "all_reduce of x");
      EXPECT_EQ(control.position().read().number, 1);
      control.finish();
    });
    for (const std::string& e : errors) EXPECT_EQ(e, "");
  }
}

}  // namespace
}  // namespace lathe::comm
