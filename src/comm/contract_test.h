// The contract of a Group and of the collectives over it, as cases that every kind of group has to pass:
// contract_test.cpp runs them on ranks that are threads, tests/mpi on processes. A case is what each rank does; it
// throws where the contract does not hold.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/philox.h"
#include "comm/clock.h"
#include "comm/collectives.h"
#include "comm/text.h"

namespace lathe::comm::contract {

struct Case {
  const char* name;
  void (*run)(Group&);
  const char* error = nullptr;  // a part of the CommError that every rank must end with; nullptr: it ends well
  double timeout = 60;          // of the group
};

// A case on a thread for each rank of this process. What they threw, by rank.
inline std::vector<std::string> errors_of(const Case& c, std::span<const std::unique_ptr<Group>> groups) {
  std::vector<std::string> errors(groups.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < groups.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        c.run(*groups[r]);
      } catch (const std::exception& e) {
        errors[r] = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  return errors;
}

template <class... Args>
void require(bool holds, fmt::format_string<Args...> what, Args&&... args) {
  if (!holds) throw std::runtime_error(fmt::format(what, std::forward<Args>(args)...));
}

template <class T>
std::span<std::byte> bytes_of(std::vector<T>& v) {
  return std::as_writable_bytes(std::span(v));
}

inline constexpr size_t kSizes[] = {0, 1, 2, 3, 7, 64, 1000, 4099};

// Small integers: sums are exact in every type, whatever their order.
inline double value(int rank, size_t i, bool is_signed) {
  return static_cast<double>((static_cast<size_t>(rank) * 3 + i) % 7) - (is_signed ? 3 : 0);
}

template <class T>
void all_reduce_of(Group& g, DType type, size_t size) {
  const bool is_signed = !std::is_same_v<T, uint8_t>;
  Collectives c(g, 64);  // many chunks
  for (const Reduce how : {Reduce::sum, Reduce::max, Reduce::min}) {
    if (type == DType::b8 && how == Reduce::sum) continue;
    std::vector<T> data(size);
    for (size_t i = 0; i < size; ++i) data[i] = static_cast<T>(value(g.rank(), i, is_signed));
    c.all_reduce(bytes_of(data), type, how);
    for (size_t i = 0; i < size; ++i) {
      double expected = value(0, i, is_signed);
      for (int r = 1; r < g.size(); ++r) {
        const double v = value(r, i, is_signed);
        expected = how == Reduce::sum   ? expected + v
                   : how == Reduce::max ? std::max(expected, v)
                                        : std::min(expected, v);
      }
      require(static_cast<double>(data[i]) == expected, "{}, reduction {}: element {} of {} is {}, expected {}",
              to_string(type), static_cast<int>(how), i, size, static_cast<double>(data[i]), expected);
    }
  }
}

inline void all_reduce(Group& g) {
  for (const size_t size : kSizes)
    for (const DType type : kAllDTypes)
      if (size < 1000 || type == DType::f32) dispatch(type, [&]<class T>(T) { all_reduce_of<T>(g, type, size); });
}

// Chunks of the usual size, more of them than are under way at a time.
inline void all_reduce_large(Group& g) {
  for (const Flow& flow : {kFastFlow, kSlowFlow}) {
    g.set_flow(flow);
    Collectives c(g);
    std::vector<float> data((5 << 18) + 3);
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(value(g.rank(), i, true));
    c.all_reduce(bytes_of(data), DType::f32);
    for (size_t i = 0; i < data.size(); ++i) {
      float expected = 0;
      for (int r = 0; r < g.size(); ++r) expected += static_cast<float>(value(r, i, true));
      require(data[i] == expected, "element {} is {}, expected {}", i, data[i], expected);
    }
  }
}

// By the ring, and by doubling.
inline void same_bits(Group& g) {
  for (const size_t chunk : {64, 4096})
    for (const Reduce how : {Reduce::sum, Reduce::max}) {
      std::vector<float> data;
      for (size_t i = 0; i < 999; ++i)
        data.push_back(std::sin(static_cast<float>(i * 7 + static_cast<size_t>(g.rank()))));
      data[0] = g.rank() % 2 ? -0.0f : 0.0f;
      Collectives c(g, chunk);
      c.all_reduce(bytes_of(data), DType::f32, how);
      std::vector<float> of_first = data;
      c.broadcast(bytes_of(of_first), 0);
      require(std::memcmp(data.data(), of_first.data(), data.size() * sizeof(float)) == 0, "other bits than rank 0");
    }
}

inline void nan_is_not_lost(Group& g) {
  for (const Reduce how : {Reduce::sum, Reduce::max, Reduce::min})
    for (int sick = 0; sick < g.size(); ++sick) {
      std::vector<float> data(5, 1.0f);
      if (g.rank() == sick) data[3] = NAN;
      Collectives(g).all_reduce(bytes_of(data), DType::f32, how);
      require(std::isnan(data[3]) && !std::isnan(data[2]), "the NaN of rank {}", sick);
    }
}

inline void scatter_gather_broadcast(Group& g) {
  Collectives c(g, 64);
  const int64_t all = int64_t{g.size()} * (g.size() + 1) / 2;
  for (const size_t size : kSizes)
    for (int root = 0; root < g.size(); root += 2) {
      const auto n = static_cast<int64_t>(size);
      const Part mine = c.part(n, g.rank());
      std::vector<int32_t> data(size);
      const auto expect = [&](int64_t i, int64_t more, const char* what) {
        require(data[static_cast<size_t>(i)] == i * all + more, "{}: element {} of {}", what, i, size);
      };
      for (size_t i = 0; i < size; ++i) data[i] = static_cast<int32_t>(i) * (g.rank() + 1);
      c.reduce_scatter(bytes_of(data), DType::i32);
      for (int64_t i = mine.first; i < mine.last; ++i) expect(i, 0, "reduce_scatter");
      for (int64_t i = 0; i < n; ++i)
        if (i < mine.first || i >= mine.last) data[static_cast<size_t>(i)] = -1;
      c.all_gather(bytes_of(data), size_of(DType::i32));
      for (int64_t i = 0; i < n; ++i) expect(i, 0, "all_gather");
      for (auto& v : data) v = g.rank() == root ? v + 1 : 0;
      c.broadcast(bytes_of(data), root);
      for (int64_t i = 0; i < n; ++i) expect(i, 1, "broadcast");
    }
}

// The clock is the host's: all ranks see the same.
inline void barrier(Group& g) {
  Collectives c(g);
  for (int late = 0; late < g.size(); ++late) {
    c.barrier();
    if (g.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::vector<int64_t> came{std::chrono::steady_clock::now().time_since_epoch().count()};
    c.barrier();
    const int64_t left = std::chrono::steady_clock::now().time_since_epoch().count();
    c.broadcast(bytes_of(came), late);
    require(left >= came[0], "rank {} left before rank {} came", g.rank(), late);
  }
}

// The bytes that collectives.h promises.
inline void bytes_on_the_wire(Group& g) {
  std::vector<float> data(1000 * static_cast<size_t>(g.size()));
  Collectives c(g, 512);
  c.all_reduce(bytes_of(data), DType::f32);
  require(c.sent_bytes() == 2 * 4 * 1000 * (g.size() - 1), "{} bytes", c.sent_bytes());
}

// Around the ring, and to itself where it is alone: empty, in the order of their tags, as many as may be.
inline void messages(Group& g) {
  const int right = (g.rank() + 1) % g.size(), left = (g.rank() + g.size() - 1) % g.size();
  for (int tag = 0; tag < Group::kTags; ++tag) {
    Message in = g.receive(left, tag, {}), out = g.send(right, tag, {});
    g.wait(in), g.wait(out), g.wait(out);
  }
  std::array<int, Group::kInFlight> sent{}, got{};
  std::array<Message, Group::kInFlight> outs, ins;
  for (int round = 0; round < 300; ++round) {
    for (size_t i = 0; i < sent.size(); ++i) {
      sent[i] = 100 * g.rank() + static_cast<int>(i) + round;
      outs[i] = g.send(right, static_cast<int>(i % 2), std::as_bytes(std::span(&sent[i], 1)));
    }
    // The even ones first: tags do not wait for each other.
    for (const size_t first : {0, 1})
      for (size_t i = first; i < got.size(); i += 2)
        ins[i] = g.receive(left, static_cast<int>(i % 2), std::as_writable_bytes(std::span(&got[i], 1)));
    for (size_t i = ins.size(); i-- > 0;) {
      if (round % 2)
        while (!g.test(ins[i])) std::this_thread::yield();
      else
        g.wait(ins[i]);
      g.wait(outs[i]);
      require(got[i] == 100 * left + static_cast<int>(i) + round, "message {} is {}", i, got[i]);
    }
  }
}

// Messages of any size between any two ranks, in an order that all ranks draw alike.
inline void random_messages(Group& g) {
  constexpr uint64_t kMessages = 60;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const CounterRng random(seed, 0, 0, 0);
    std::vector<std::vector<uint8_t>> buffers(kMessages);
    std::vector<Message> under_way;
    std::vector<std::pair<size_t, uint8_t>> expected;
    std::vector<int> busy(static_cast<size_t>(g.size() * g.size()));
    const auto finish = [&] {
      for (Message& m : under_way) g.wait(m);
      for (const auto& [i, byte] : expected)
        require(std::all_of(buffers[i].begin(), buffers[i].end(), [b = byte](uint8_t v) { return v == b; }),
                "message {} of seed {}", i, seed);
      under_way.clear(), expected.clear();
      std::fill(busy.begin(), busy.end(), 0);
    };
    for (uint64_t i = 0; i < kMessages; ++i) {
      const auto ranks = static_cast<uint64_t>(g.size());
      const int from = static_cast<int>(random.below(8 * i, ranks)),
                to = static_cast<int>(random.below(8 * i + 1, ranks));
      const int tag = static_cast<int>(random.below(8 * i + 2, Group::kTags));
      const uint64_t bits = random.below(8 * i + 3, 20);
      const size_t size = random.below(8 * i + 4, (uint64_t{1} << bits) + 1);
      const auto byte = static_cast<uint8_t>(1 + i + seed);
      if (++busy[static_cast<size_t>(from * g.size() + to)] > Group::kInFlight)
        finish(), busy[static_cast<size_t>(from * g.size() + to)] = 1;
      if (g.rank() == to && from != to) {
        buffers[i].assign(size, 0);
        under_way.push_back(g.receive(from, tag, bytes_of(buffers[i])));
        expected.push_back({i, byte});
      }
      if (g.rank() == from && from != to) {
        buffers[i].assign(size, byte);
        under_way.push_back(g.send(to, tag, bytes_of(buffers[i])));
      }
    }
    finish();
  }
}

inline void sizes_disagree(Group& g) {
  std::vector<float> data(g.rank() == 0 ? 10u * static_cast<size_t>(g.size()) : 12u * static_cast<size_t>(g.size()));
  Collectives(g).all_reduce(bytes_of(data), DType::f32);
}

// From rank 0 to rank 1; all wait for more.
inline void wrong_size(Group& g, size_t sent, size_t expected) {
  std::vector<float> data(g.rank() == 0 ? sent : expected);
  Message m;
  if (g.rank() == 0) m = g.send(1, 2, bytes_of(data));
  if (g.rank() == 1) m = g.receive(0, 2, bytes_of(data));
  g.wait(m);
  std::byte b{};
  Message never = g.receive((g.rank() + 1) % g.size(), 0, {&b, 1});
  g.wait(never);
}
inline void one_is_shorter(Group& g) { wrong_size(g, 90000, 100000); }
inline void one_is_longer(Group& g) { wrong_size(g, 100000, 90000); }

inline void abort_ends_who_waits(Group& g) {
  if (g.rank() == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    g.abort("rank 1: the disk is full");
  }
  std::byte b{};
  Message m = g.receive((g.rank() + 1) % g.size(), 0, {&b, 1});
  g.wait(m);
}

// As a control channel does: on each rank, by a thread of its own.
inline void abort_by_another_thread(Group& g) {
  std::jthread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    g.abort("rank 7 is gone");
  });
  std::byte b{};
  Message m = g.receive((g.rank() + 1) % g.size(), 0, {&b, 1});
  g.wait(m);
}

inline void abort_in_collectives(Group& g) {
  Collectives c(g, 64);
  std::vector<float> data(1000);
  for (int step = 0;; ++step) {
    if (g.rank() == g.size() - 1 && step == 20) g.abort("loss is not a number");
    c.all_reduce(bytes_of(data), DType::f32);
  }
}

inline void timeout(Group& g) {
  std::byte b{};
  Message m = g.receive((g.rank() + 1) % g.size(), 3, {&b, 1});
  g.wait(m);
}

// Texts of any size come to the first rank, in the order of ranks; collectives before and after are not disturbed.
inline void texts(Group& g) {
  const auto text_of = [](int rank, size_t size) {
    std::string text(size * static_cast<size_t>(rank % 3), ' ');
    for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31 + static_cast<size_t>(rank));
    return text;
  };
  Collectives c(g, 64);
  for (const size_t size : {size_t{0}, size_t{5}, size_t{1} << 20, (size_t{1} << 20) + 7}) {
    c.barrier();
    const std::vector<std::string> all = gather_text(g, text_of(g.rank(), size));
    require(all.size() == (g.rank() == 0 ? static_cast<size_t>(g.size()) : 0), "{} texts", all.size());
    for (size_t r = 0; r < all.size(); ++r)
      require(all[r] == text_of(static_cast<int>(r), size), "rank {}: {} bytes", r, all[r].size());
    const std::string first = broadcast_text(g, text_of(g.rank() + 1, size));
    require(first == text_of(1, size), "{} bytes", first.size());
  }
}

// Clocks that differ by hours are found out; the same clock has no offset.
inline void clocks(Group& g) {
  const auto now = [] { return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count(); };
  constexpr int64_t kHour = 3'600'000'000'000;
  const ClockOffset same = find_clock_offset(g, now);
  require(same.ns == 0, "the same clock is {} ns away", same.ns);
  const int64_t ahead = g.rank() * kHour * (g.rank() % 2 ? 1 : -1);
  const ClockOffset other = find_clock_offset(g, [&] { return now() + ahead; });
  require(std::abs(other.ns + ahead) <= other.uncertainty, "{} ns, expected {} within {}", other.ns, -ahead,
          other.uncertainty);
  require(other.uncertainty >= 0 && other.uncertainty < kHour, "{} ns", other.uncertainty);
}

inline constexpr Case kCases[] = {
    {"all_reduce", all_reduce},
    {"all_reduce_large", all_reduce_large},
    {"same_bits", same_bits},
    {"nan_is_not_lost", nan_is_not_lost},
    {"scatter_gather_broadcast", scatter_gather_broadcast},
    {"barrier", barrier},
    {"bytes_on_the_wire", bytes_on_the_wire},
    {"messages", messages},
    {"random_messages", random_messages},
    {"texts", texts},
    {"clocks", clocks},
    {"sizes_disagree", sizes_disagree, "the ranks do not run the same program"},
    {"one_is_shorter", one_is_shorter, "rank 0 sent 360000 bytes, rank 1 expected 400000 (tag 2)"},
    {"one_is_longer", one_is_longer,
     "rank 0 sent 400000 bytes, rank 1 expected 360000 (tag 2); the ranks do not run the same program"},
    {"abort_ends_who_waits", abort_ends_who_waits, "rank 1: the disk is full"},
    {"abort_by_another_thread", abort_by_another_thread, "rank 7 is gone"},
    {"abort_in_collectives", abort_in_collectives, "loss is not a number"},
    {"timeout", timeout, " waited 0.2 s to receive 1 bytes from rank ", 0.2},
};

}  // namespace lathe::comm::contract
