#include "comm/control.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "base/philox.h"
#include "comm/control/member.h"
#include "comm/control/stacks.h"
#include "comm/control/test_controls.h"

namespace lathe::comm {
namespace {

using std::chrono::milliseconds;

TEST(Control, GatherAndBroadcast) {
  for (const int ranks : {1, 2, 5}) {
    const auto errors = on_controls(ranks, {.timeout = 20}, [&](Control& c) {
      for (size_t size : {0u, 1u, 1000u, 300000u}) {
        const std::string own(size, static_cast<char>('a' + c.rank()));
        const auto all = c.gather(own);
        ASSERT_EQ(all.size(), c.rank() == 0 ? static_cast<size_t>(ranks) : 0u);
        for (size_t r = 0; r < all.size(); ++r) EXPECT_EQ(all[r], std::string(size, static_cast<char>('a' + r)));
        EXPECT_EQ(c.broadcast(c.rank() == 0 ? own : "no"), std::string(size, 'a'));
      }
      EXPECT_EQ(c.host(c.size() - 1), host_name());
      c.finish();
    });
    for (const std::string& e : errors) EXPECT_EQ(e, "");
  }
}

TEST(Control, Agree) {
  const auto errors = on_controls(3, {.timeout = 20}, [&](Control& c) {
    std::vector<Item> items{{"program", "1"}, {"recipe", "x"}};
    for (int i = 0; i < 10000; ++i) items.push_back({"collective", std::to_string(i)});
    EXPECT_EQ(c.agree(items), "");
    if (c.rank() == 1) items[7777].value = "other";
    EXPECT_EQ(
        c.agree(items),
        "the ranks differ in collective (item 7778 of what they compare): ranks 0, 2: \"7775\"; rank 1: \"other\"");
    c.finish();
  });
  for (const std::string& e : errors) EXPECT_EQ(e, "");
}

TEST(Control, AnErrorOfOneRankIsHeardByAllOnce) {
  for (const int who : {0, 1, 2}) {
    std::atomic<int> calls{0};
    const std::string expected =
        fmt::format("rank {} (host {}): the disk is full (at step 3 before its first collective)", who, host_name());
    const auto errors = on_controls(3, {.timeout = 20, .heartbeat = 0.01}, [&](Control& c) {
      c.set_on_failure([&](const std::string& why) {
        EXPECT_EQ(why, expected);
        ++calls;
      });
      c.position().set_step(3);
      std::this_thread::sleep_for(milliseconds(50));  // a heartbeat
      if (c.rank() == who) {
        EXPECT_EQ(c.fail("the disk is full"), expected);
        EXPECT_EQ(c.speaker(), who);
        return;
      }
      EXPECT_THROW(c.gather("never"), CommError);
      EXPECT_EQ(c.speaker(), who);  // it lives, and says so
      EXPECT_EQ(c.fail("no answer", Cause::messages), expected);
    });
    for (const std::string& e : errors) EXPECT_EQ(e, "");
    EXPECT_EQ(calls, 3);
  }
}

// However slow it is.
TEST(Control, TheCallbackHasRunWhenFailReturns) {
  const auto errors = on_controls(3, {.timeout = 20, .heartbeat = 0.01}, [&](Control& c) {
    if (c.rank() == 2) return;  // gone
    std::atomic<bool> is_called{false};
    c.set_on_failure([&](const std::string&) {
      std::this_thread::sleep_for(milliseconds(30));
      is_called = true;
    });
    c.fail("rank 2 closed its connection", Cause::messages);
    EXPECT_TRUE(is_called);
    c.set_on_failure(nullptr);
  });
  for (const std::string& e : errors) EXPECT_EQ(e, "");
}

// What all of them know names nobody, and the first one says it.
TEST(Control, AReasonThatAllHaveNamesNobody) {
  const auto errors = on_controls(3, {.timeout = 20, .heartbeat = 0.01}, [&](Control& c) {
    c.fail_alike("the ranks differ");
    EXPECT_EQ(c.fail("the ranks differ"), "the ranks differ");
    EXPECT_EQ(c.failure(), "the ranks differ");
    EXPECT_EQ(c.speaker(), 0);
  });
  for (const std::string& e : errors) EXPECT_EQ(e, "");
}

// However late the first one is: nobody is blamed in its place, and one rank says it.
TEST(Control, AReasonThatAllHaveWaitsForTheFirstRank) {
  const auto errors = on_controls(3, {.timeout = 20, .heartbeat = 0.01}, [&](Control& c) {
    if (c.rank() == 0) std::this_thread::sleep_for(milliseconds(300));
    c.fail_alike("the ranks differ");
    EXPECT_EQ(c.fail("the ranks differ"), "the ranks differ");
    EXPECT_EQ(c.speaker(), 0);
  });
  for (const std::string& e : errors) EXPECT_EQ(e, "");
}

TEST(Control, TheSecondRankSpeaksWhenTheFirstIsGone) {
  const auto errors = on_controls(3, {.timeout = 20, .heartbeat = 0.01}, [&](Control& c) {
    if (c.rank() == 0) return;
    while (!c.failure()) std::this_thread::sleep_for(milliseconds(5));
    EXPECT_EQ(c.speaker(), 1);
  });
  for (const std::string& e : errors) EXPECT_EQ(e, "");
}

// Messages that fail because another rank is gone: the reason is the rank that is gone.
TEST(Control, ABetterReasonWins) {
  const auto errors = on_controls(3, {.timeout = 20, .heartbeat = 0.01}, [&](Control& c) {
    if (c.rank() == 2) {
      std::this_thread::sleep_for(milliseconds(100));
      return;  // gone without a word
    }
    const std::string text = c.fail("rank 2 closed its connection", Cause::messages);
    EXPECT_NE(text.find("rank 2 (host "), std::string::npos) << text;
    EXPECT_NE(text.find("killed or gone"), std::string::npos) << text;
  });
  const auto alone = on_controls(2, {.timeout = 20, .heartbeat = 0.01}, [&](Control& c) {
    if (c.rank() == 1) {
      EXPECT_NE(c.fail("odd bytes", Cause::messages).find("rank 1 (host "), std::string::npos);
    }
    if (c.rank() == 0) c.finish();
  });
  EXPECT_NE(alone[0].find("odd bytes"), std::string::npos);
}

TEST(Control, RanksThatAreElsewhereAreNamed) {
  const auto errors = on_controls(3, {.timeout = 0.5, .heartbeat = 0.01}, [&](Control& c) {
    if (c.rank() == 1) c.broadcast("");
    c.gather("a");
    c.gather("b");
  });
  for (const std::string& e : errors) EXPECT_NE(e.find("rank 1 (host "), std::string::npos) << e;
}

TEST(Control, WhoDoesNotComeIsNamed) {
  const auto errors = on_controls(3, {.timeout = 0.5, .heartbeat = 0.02}, [&](Control& c) {
    if (c.rank() != 1) c.gather("a");
    while (!c.failure()) std::this_thread::sleep_for(milliseconds(5));
  });
  for (const int r : {0, 2}) {
    const std::string& e = errors[static_cast<size_t>(r)];
    EXPECT_NE(e.find("rank 1 (host "), std::string::npos) << e;
    EXPECT_NE(e.find("does not come to message 0"), std::string::npos) << e;
  }
}

TEST(Control, RanksThatNeverConnectAreNamed) {
  Listener listener("127.0.0.1:0");
  const std::string address = listener.address();
  std::string other;
  std::thread one([&] {
    try {
      Control c({.rank = 1, .size = 4, .address = address, .token = "t", .start_timeout = 5});
    } catch (const CommError& e) {
      other = e.what();
    }
  });
  try {
    Control c({.rank = 0, .size = 4, .token = "t", .start_timeout = 0.5}, std::move(listener));
    ADD_FAILURE();
  } catch (const CommError& e) {
    EXPECT_NE(std::string(e.what()).find("within 0.5 s: 2, 3"), std::string::npos) << e.what();
  }
  one.join();
  EXPECT_NE(other.find("within 0.5 s: 2, 3"), std::string::npos) << other;
}

TEST(Control, NobodyListens) {
  try {
    Control c({.rank = 1, .size = 2, .address = "127.0.0.1:1", .start_timeout = 0.3});
    ADD_FAILURE();
  } catch (const CommError& e) {
    EXPECT_NE(std::string(e.what()).find("rank 1: cannot reach rank 0 at 127.0.0.1:1 within 0.3 s"), std::string::npos)
        << e.what();
  }
}

// Strangers of all kinds while ranks connect, and before and after that.
TEST(Control, StrangersAreRefusedAndDisturbNobody) {
  Listener listener("127.0.0.1:0");
  const std::string address = listener.address();
  std::atomic<bool> ends{false};
  std::vector<std::thread> strangers;
  for (uint32_t s = 0; s < 3; ++s)
    strangers.emplace_back([&, s] {
      std::vector<Socket> silent;
      for (uint32_t i = 0; !ends && i < 1000; ++i) {
        const CounterRng random(i, 7 + s, 0, 0);
        std::string problem;
        Socket socket = connect_to(address, 1, problem);
        if (!socket) break;  // the door is closed
        if (s == 0) {
          silent.push_back(std::move(socket));  // never says a word
        } else {
          std::string bytes(random.below(0, 2000), 0);
          for (size_t k = 0; k < bytes.size(); ++k) bytes[k] = static_cast<char>(random.bits(k + 1));
          if (s == 2) bytes = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
          [[maybe_unused]] const ssize_t sent = send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        }
        std::this_thread::sleep_for(milliseconds(1));
      }
    });
  std::string wrong_token, wrong_size, twice;
  const auto expect_refused = [&](ControlOptions o, std::string& text) {
    o.address = address;
    try {
      Control c(o);
    } catch (const CommError& e) {
      text = e.what();
    }
  };
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    Control c({.rank = 0, .size = 3, .token = "ours", .timeout = 20}, std::move(listener));
    EXPECT_EQ(c.gather("0").size(), 3u);
    c.finish();
  });
  std::this_thread::sleep_for(milliseconds(100));
  expect_refused({.rank = 1, .size = 3, .token = "theirs", .start_timeout = 0.3}, wrong_token);
  expect_refused({.rank = 1, .size = 4, .token = "ours", .start_timeout = 2}, wrong_size);
  const auto join_run = [&](int rank) {
    Control c({.rank = rank, .size = 3, .address = address, .token = "ours", .timeout = 20});
    c.gather("x");
    c.finish();
  };
  threads.emplace_back([&] { join_run(1); });
  std::this_thread::sleep_for(milliseconds(100));
  expect_refused({.rank = 1, .size = 3, .token = "ours", .start_timeout = 2}, twice);
  threads.emplace_back([&] { join_run(2); });
  for (std::thread& t : threads) t.join();
  ends = true;
  for (std::thread& t : strangers) t.join();
  EXPECT_NE(wrong_token.find("this is another job"), std::string::npos) << wrong_token;
  EXPECT_NE(wrong_size.find("was started as one of 4 ranks"), std::string::npos) << wrong_size;
  EXPECT_NE(twice.find("rank 1 is here already"), std::string::npos) << twice;
}

// A rank that speaks the language and says nonsense: the run fails, nothing else does.
TEST(Control, NonsenseOfARank) {
  int failed = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    Listener listener("127.0.0.1:0");
    const std::string address = listener.address();
    std::thread rank([&] {
      const CounterRng random(seed, 8, 0, 0);
      std::string payload, problem;
      Member member = greet(address, 0, {Purpose::control, 1, 2, "t", 10});
      if (!await_welcome(member, 10, payload, problem)) return;
      FrameWriter out;
      for (uint64_t i = 0; i < 10; ++i) {
        std::string bytes(random.below(1000 * i, 65), 0);
        for (size_t k = 0; k < bytes.size(); ++k)
          bytes[k] = static_cast<char>(random.below(1000 * i + 1 + k, 3) == 0 ? random.bits(1000 * i + 100 + k) : 0);
        out.add(static_cast<FrameType>(1 + random.below(1000 * i + 999, 9)), bytes);
      }
      out.flush(member.socket.fd());
      std::this_thread::sleep_for(milliseconds(5));
    });
    Control c({.rank = 0, .size = 2, .token = "t", .timeout = 5, .heartbeat = 0.01}, std::move(listener));
    rank.join();
    try {
      c.finish();
    } catch (const CommError& e) {
      ++failed;
    }
  }
  EXPECT_GT(failed, 140);
}

// A slow rank is no failure; the report names it.
TEST(Control, Stragglers) {
  const auto errors = on_controls(3, {.timeout = 20, .heartbeat = 0.01}, [&](Control& c) {
    for (int64_t step = 1; step <= 30; ++step) {
      c.position().set_step(step);
      if (c.rank() == 1) std::this_thread::sleep_for(milliseconds(10));
      const Inside inside(&c.position(), Position::kNoLabel);
      c.gather("");
    }
    std::this_thread::sleep_for(milliseconds(50));
    if (c.rank() == 0) {
      const auto rows = c.stragglers();
      ASSERT_EQ(rows.size(), 3u);
      EXPECT_GT(rows[1].late, 0.1);
      EXPECT_LT(rows[0].late, 0.5 * rows[1].late);
      EXPECT_LT(rows[2].late, 0.5 * rows[1].late);
      EXPECT_NE(c.straggler_table().find(host_name().substr(0, 10)), std::string::npos);
    }
    c.finish();
  });
  for (const std::string& e : errors) EXPECT_EQ(e, "");
}

__attribute__((noinline)) void a_function_that_waits(const std::atomic<bool>& ends) {
  while (!ends) std::this_thread::sleep_for(milliseconds(1));
}

TEST(Stacks, OfAllThreads) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer has a thread of its own, and keeps signals back";
#endif
  prepare_stacks();
  std::atomic<bool> ends{false};
  std::thread t([&] { a_function_that_waits(ends); });
  std::this_thread::sleep_for(milliseconds(20));
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  print_stacks(fds[1]);
  ends = true;
  t.join();
  char text[16384] = "";
  ASSERT_GT(read(fds[0], text, sizeof text - 1), 0);
  EXPECT_NE(std::strstr(text, "thread "), nullptr);
  EXPECT_NE(std::strstr(text, "libc"), nullptr) << text;
  EXPECT_EQ(std::strstr(text, "does not answer"), nullptr) << text;
  close(fds[0]), close(fds[1]);
}

}  // namespace
}  // namespace lathe::comm
