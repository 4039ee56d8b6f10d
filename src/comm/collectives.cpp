#include "comm/collectives.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace lathe::comm {
namespace {

constexpr int kTag = 0;  // messages of collectives follow each other in one order on all ranks

template <class T>
void reduce_typed(T* a, const T* b, size_t count, Reduce how) {
  using C = Compute<T>;
  const auto each = [&](auto&& f) {
    for (size_t i = 0; i < count; ++i) a[i] = static_cast<T>(f(static_cast<C>(a[i]), static_cast<C>(b[i])));
  };
  switch (how) {
    case Reduce::sum: return each([](C x, C y) { return x + y; });
    // A NaN of either side stays.
    case Reduce::max: return each([](C x, C y) { return x > y || x != x ? x : y; });
    case Reduce::min: return each([](C x, C y) { return x < y || x != x ? x : y; });
  }
}

}  // namespace

void reduce_into(std::span<std::byte> a, std::span<const std::byte> b, DType type, Reduce how) {
  LATHE_CHECK(a.size() == b.size() && a.size() % static_cast<size_t>(size_of(type)) == 0, "{} and {} bytes", a.size(),
              b.size());
  dispatch(type, [&]<class T>(T) {
    reduce_typed(reinterpret_cast<T*>(a.data()), reinterpret_cast<const T*>(b.data()), a.size() / sizeof(T), how);
  });
}

Collectives::Collectives(Group& group, size_t chunk) : group_(group), chunk_(chunk), scratch_(kAhead * chunk) {
  LATHE_CHECK(chunk > 0 && chunk % 8 == 0, "chunks of {} bytes", chunk);
}

Message Collectives::send(int to, std::span<const std::byte> bytes) {
  sent_ += static_cast<int64_t>(bytes.size());
  return group_.send(to, kTag, bytes);
}

Part Collectives::part(int64_t units, int rank) const { return part_of(units, group_.size(), rank); }

// In turn t a rank passes on the part that it got in turn t - 1; with a reduction, what arrives is added to what is
// there. The chunks of all turns are one sequence: a chunk may be sent as soon as the one that is `per_part` places
// before it has arrived.
void Collectives::ring(std::span<std::byte> data, int64_t unit, DType type, const Reduce* reduce) {
  const int n = group_.size(), rank = group_.rank(), right = (rank + 1) % n, left = (rank + n - 1) % n;
  if (n == 1) return;
  const int64_t units = static_cast<int64_t>(data.size()) / unit;
  LATHE_CHECK(units * unit == static_cast<int64_t>(data.size()), "{} bytes in units of {}", data.size(), unit);
  const int64_t largest = part(units, 0).last * unit, chunk = static_cast<int64_t>(chunk_);
  const int64_t per_part = (largest + chunk - 1) / chunk, all = per_part * (n - 1);
  // Which bytes item i of the sequence is about, where rank `of` sends it.
  const auto piece = [&](int64_t i, int of) {
    const int turn = static_cast<int>(i / per_part);
    const Part p = part(units, (of - turn - (reduce ? 1 : 0) + 2 * n) % n);
    const int64_t first = std::min(p.first * unit + i % per_part * chunk, p.last * unit);
    return data.subspan(static_cast<size_t>(first), static_cast<size_t>(std::min(chunk, p.last * unit - first)));
  };
  std::array<Message, kAhead> sends, receives;
  const auto slot = [&](int64_t i) { return static_cast<size_t>(i % kAhead); };
  const auto room = [&](int64_t i) { return std::span(scratch_).subspan(slot(i) * chunk_, piece(i, left).size()); };
  int64_t sent = 0, asked = 0;
  for (int64_t i = 0; i < all; ++i) {
    for (; asked < std::min(all, i + kAhead); ++asked)
      receives[slot(asked)] = group_.receive(left, kTag, reduce ? room(asked) : piece(asked, left));
    for (; sent < std::min({all, i + kAhead, i + per_part}); ++sent) {
      group_.wait(sends[slot(sent)]);
      sends[slot(sent)] = send(right, piece(sent, rank));
    }
    group_.wait(receives[slot(i)]);
    if (reduce) reduce_into(piece(i, left), room(i), type, *reduce);
  }
  for (Message& m : sends) group_.wait(m);
}

void Collectives::reduce_scatter(std::span<std::byte> data, DType type, Reduce how, int64_t unit) {
  ring(data, unit > 0 ? unit : size_of(type), type, &how);
}
void Collectives::all_gather(std::span<std::byte> data, int64_t unit) { ring(data, unit, DType::u8, nullptr); }

void Collectives::all_reduce(std::span<std::byte> data, DType type, Reduce how) {
  reduce_scatter(data, type, how);
  all_gather(data, size_of(type));
}

// A chain from the root to its left neighbour: each rank passes on a chunk as soon as it has it.
void Collectives::broadcast(std::span<std::byte> data, int root) {
  const int n = group_.size(), rank = group_.rank(), place = (rank - root + n) % n;
  LATHE_CHECK(root >= 0 && root < n, "root {} of {}", root, n);
  if (n == 1) return;
  const auto chunks = static_cast<int64_t>((data.size() + chunk_ - 1) / chunk_);
  const auto piece = [&](int64_t i) {
    const size_t first = static_cast<size_t>(i) * chunk_;
    return data.subspan(first, std::min(chunk_, data.size() - first));
  };
  std::array<Message, kAhead> sends, receives;
  int64_t asked = 0;
  for (int64_t i = 0; i < chunks; ++i) {
    const auto slot = static_cast<size_t>(i % kAhead);
    if (place > 0) {
      for (; asked < std::min(chunks, i + kAhead); ++asked)
        receives[static_cast<size_t>(asked % kAhead)] = group_.receive((rank + n - 1) % n, kTag, piece(asked));
      group_.wait(receives[slot]);
    }
    if (place == n - 1) continue;
    group_.wait(sends[slot]);
    sends[slot] = send((rank + 1) % n, piece(i));
  }
  for (Message& m : sends) group_.wait(m);
}

// Dissemination: in turn t a rank hears of 2^t others.
void Collectives::barrier() {
  const int n = group_.size(), rank = group_.rank();
  std::byte out{}, in{};
  for (int distance = 1; distance < n; distance *= 2) {
    Message from = group_.receive((rank + n - distance) % n, kTag, {&in, 1});
    Message to = send((rank + distance) % n, {&out, 1});
    group_.wait(to);
    group_.wait(from);
  }
}

}  // namespace lathe::comm
