#include "comm/collectives.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace lathe::comm {
namespace {

constexpr int kTag = 0;  // messages of collectives follow each other in one order on all ranks

template <class T, class F>
void reduce_each(T* out, const T* a, const T* b, size_t count, F&& f) {
  using C = Compute<T>;
  constexpr size_t kBlock = 32;  // of known length, and stored when all is read: vectors, whatever overlaps
  size_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    T now[kBlock];
    for (size_t k = 0; k < kBlock; ++k) now[k] = static_cast<T>(f(static_cast<C>(a[i + k]), static_cast<C>(b[i + k])));
    std::copy_n(now, kBlock, out + i);
  }
  for (; i < count; ++i) out[i] = static_cast<T>(f(static_cast<C>(a[i]), static_cast<C>(b[i])));
}

// out = a and b; `out` may be a.
void reduce(std::byte* out, const std::byte* a, const std::byte* b, size_t bytes, DType type, Reduce how) {
  dispatch(type, [&]<class T>(T) {
    using C = Compute<T>;
    const auto each = [&](auto&& f) {
      reduce_each(reinterpret_cast<T*>(out), reinterpret_cast<const T*>(a), reinterpret_cast<const T*>(b),
                  bytes / sizeof(T), f);
    };
    switch (how) {
      case Reduce::sum: return each([](C x, C y) { return x + y; });
      // A NaN of either side stays.
      case Reduce::max: return each([](C x, C y) { return x > y || x != x ? x : y; });
      case Reduce::min: return each([](C x, C y) { return x < y || x != x ? x : y; });
    }
  });
}

// A list of tensors as one buffer.
class Joined {
 public:
  explicit Joined(std::span<const InOut> list) : list_(list) {
    for (const InOut& t : list) bytes_ += t.bytes;
  }
  int64_t bytes() const { return bytes_; }

  // f(tensor, first byte in it, first byte of the range, bytes) for each piece of a range.
  template <class F>
  void each_piece(Part range, F&& f) const {
    int64_t begin = 0;  // of the tensor
    for (const InOut& t : list_) {
      const int64_t from = std::max(begin, range.first), to = std::min(begin + t.bytes, range.last);
      if (from < to) f(t, from - begin, from - range.first, to - from);
      begin += t.bytes;
      if (begin >= range.last) break;
    }
  }

  // Where a range lies in one piece; null: it does not. `in`: of the inputs.
  std::byte* find(Part range, bool in) const {
    std::byte* found = nullptr;
    each_piece(range, [&](const InOut& t, int64_t at, int64_t, int64_t bytes) {
      if (bytes == range.size()) found = (in ? const_cast<std::byte*>(t.in) : t.out) + at;
    });
    return found;
  }

 private:
  std::span<const InOut> list_;
  int64_t bytes_ = 0;
};

}  // namespace

void reduce_into(std::span<std::byte> a, std::span<const std::byte> b, DType type, Reduce how) {
  LATHE_CHECK(a.size() == b.size() && a.size() % static_cast<size_t>(size_of(type)) == 0, "{} and {} bytes", a.size(),
              b.size());
  reduce(a.data(), a.data(), b.data(), a.size(), type, how);
}

namespace {

// In each direction, of messages that are under way in a ring over parts of at most `largest` bytes.
int64_t slots_of(const Flow& flow, int64_t largest, int64_t ranks) {
  const int64_t chunk = std::min(flow.chunk, largest);
  return chunk == 0 ? 0 : std::min<int64_t>(flow.ahead, (ranks - 1) * ((largest + chunk - 1) / chunk));
}

int64_t ring_scratch(const Flow& flow, int64_t largest, int64_t ranks) {
  return 2 * slots_of(flow, largest, ranks) * std::min(flow.chunk, largest);
}

int64_t whole_scratch(const Flow& flow) { return 2 * flow.ahead * flow.chunk; }

}  // namespace

Collectives::Collectives(Group& group, int64_t chunk)
    : group_(group),
      chunk_(chunk),
      own_(static_cast<size_t>(chunk > 0 ? whole_scratch(flow())
                                         : std::max(whole_scratch(kFastFlow), whole_scratch(kSlowFlow)))),
      scratch_(own_) {
  LATHE_CHECK(chunk >= 0 && chunk % 8 == 0, "chunks of {} bytes", chunk);
}

Collectives::Collectives(Group& group, std::span<std::byte> scratch) : group_(group), chunk_(0), scratch_(scratch) {}

int64_t Collectives::scratch_for(int64_t bytes, int64_t unit, int64_t ranks) {
  if (ranks == 1) return 0;
  const int64_t largest = part_of(bytes / unit, ranks, 0).last * unit;
  const int64_t small = bytes <= static_cast<int64_t>(kSmall) ? 2 * bytes : 0;
  return std::max({small, ring_scratch(kFastFlow, largest, ranks), ring_scratch(kSlowFlow, largest, ranks)});
}

Message Collectives::send(int to, std::span<const std::byte> bytes) {
  sent_ += static_cast<int64_t>(bytes.size());
  return group_.send(to, kTag, bytes);
}

Part Collectives::part(int64_t units, int rank) const { return part_of(units, group_.size(), rank); }

// In turn t a rank passes on the part that it got in turn t - 1; with a reduction, what arrives is added to what is
// there. The chunks of all turns are one sequence: a chunk may be sent as soon as the one that is `per_part` places
// before it has arrived.
//
// With a reduction a rank sends one part as it is and adds each other one once to what arrived: inputs are read, and
// results written, once.
void Collectives::ring(std::span<const InOut> list, int64_t unit, DType type, const Reduce* reduction) {
  const int n = group_.size(), rank = group_.rank(), right = (rank + 1) % n, left = (rank + n - 1) % n;
  if (n == 1) return;
  const Joined data(list);
  const int64_t units = data.bytes() / unit;
  LATHE_CHECK(units * unit == data.bytes(), "{} bytes in units of {}", data.bytes(), unit);
  const int64_t largest = part(units, 0).last * unit, chunk = std::min(flow().chunk, largest);
  if (largest == 0) return;
  const int64_t ahead = slots_of(flow(), largest, n);
  LATHE_CHECK((!reduction && list.size() == 1) || static_cast<int64_t>(scratch_.size()) >= 2 * ahead * chunk,
              "{} bytes of scratch for {} chunks of {}", scratch_.size(), ahead, chunk);
  const int64_t per_part = (largest + chunk - 1) / chunk, all = per_part * (n - 1);
  // Which bytes item i of the sequence is about, where rank `of` sends it.
  const auto range = [&](int64_t i, int of) {
    const int turn = static_cast<int>(i / per_part);
    const Part p = part(units, (of - turn - (reduction ? 1 : 0) + 2 * n) % n);
    const int64_t first = std::min(p.first * unit + i % per_part * chunk, p.last * unit);
    return Part{first, std::min(first + chunk, p.last * unit)};
  };
  std::array<Message, Group::kInFlight> sends, receives;
  const auto slot = [&](int64_t i) { return static_cast<size_t>(i % ahead); };
  const auto room = [&](int64_t i, bool sent) { return scratch_.data() + (i % ahead + (sent ? ahead : 0)) * chunk; };
  const auto bytes_at = [](std::byte* at, Part r) { return std::span(at, static_cast<size_t>(r.size())); };
  const auto start_receive = [&](int64_t i) {
    const Part r = range(i, left);
    std::byte* const place = reduction ? nullptr : data.find(r, false);
    return group_.receive(left, kTag, bytes_at(place || r.size() == 0 ? place : room(i, false), r));
  };
  const auto start_send = [&](int64_t i) {
    const Part r = range(i, rank);
    const bool raw = reduction && i < per_part;
    std::byte* place = data.find(r, raw);
    if (!place && r.size() > 0) {
      place = room(i, true);
      data.each_piece(r, [&](const InOut& t, int64_t at, int64_t from, int64_t bytes) {
        std::memcpy(place + from, (raw ? t.in : t.out) + at, static_cast<size_t>(bytes));
      });
    }
    return send(right, bytes_at(place, r));
  };
  const auto take = [&](int64_t i) {
    const Part r = range(i, left);
    if (!reduction && data.find(r, false)) return;
    data.each_piece(r, [&](const InOut& t, int64_t at, int64_t from, int64_t bytes) {
      if (reduction)
        reduce(t.out + at, t.in + at, room(i, false) + from, static_cast<size_t>(bytes), type, *reduction);
      else
        std::memcpy(t.out + at, room(i, false) + from, static_cast<size_t>(bytes));
    });
  };
  int64_t sent = 0, asked = 0;
  for (int64_t i = 0; i < all; ++i) {
    for (; asked < std::min(all, i + ahead); ++asked) receives[slot(asked)] = start_receive(asked);
    for (; sent < std::min({all, i + ahead, i + per_part}); ++sent) {
      group_.wait(sends[slot(sent)]);
      sends[slot(sent)] = start_send(sent);
    }
    group_.wait(receives[slot(i)]);
    take(i);
  }
  for (Message& m : sends) group_.wait(m);
}

int32_t Collectives::label(std::string_view name) {
  return group_.position() ? group_.position()->add_label(name) : Position::kNoLabel;
}

void Collectives::reduce_scatter(std::span<std::byte> data, DType type, Reduce how, int64_t unit) {
  const Inside inside(group_.position(), label_);
  const InOut one{data.data(), data.data(), static_cast<int64_t>(data.size())};
  ring(std::span(&one, 1), unit > 0 ? unit : size_of(type), type, &how);
}

void Collectives::gather(std::span<std::byte> data, int64_t unit) {
  const InOut one{data.data(), data.data(), static_cast<int64_t>(data.size())};
  ring(std::span(&one, 1), unit, DType::u8, nullptr);
}

void Collectives::all_gather(std::span<std::byte> data, int64_t unit) {
  const Inside inside(group_.position(), label_);
  gather(data, unit);
}

// In turn t pairs of ranks that differ in bit t exchange all they have. Ranks beyond the largest power of two give
// theirs to a partner before, and get the result after. The lower rank's comes first in each sum, so all ranks add in
// one order. `other`: as large as `data`.
void Collectives::double_up(std::span<std::byte> data, std::span<std::byte> other, DType type, Reduce how) {
  const int n = group_.size(), rank = group_.rank(),
            paired = static_cast<int>(std::bit_floor(static_cast<unsigned>(n)));
  const auto wait = [&](Message m) { group_.wait(m); };
  if (rank >= paired) {
    wait(send(rank - paired, data));
    return wait(group_.receive(rank - paired, kTag, data));
  }
  if (rank + paired < n) {
    wait(group_.receive(rank + paired, kTag, other));
    reduce_into(data, other, type, how);
  }
  for (int distance = 1; distance < paired; distance *= 2) {
    const int peer = rank ^ distance;
    Message from = group_.receive(peer, kTag, other);
    wait(send(peer, data));
    group_.wait(from);
    if (peer > rank) {
      reduce_into(data, other, type, how);
    } else {
      reduce_into(other, data, type, how);
      std::copy(other.begin(), other.end(), data.begin());
    }
  }
  if (rank + paired < n) wait(send(rank + paired, data));
}

void Collectives::all_reduce(std::span<std::byte> data, DType type, Reduce how) {
  const InOut one{data.data(), data.data(), static_cast<int64_t>(data.size())};
  all_reduce(std::span(&one, 1), type, how);
}

void Collectives::all_reduce(std::span<const InOut> list, DType type, Reduce how) {
  const Inside inside(group_.position(), label_);
  const Joined all(list);
  if (group_.size() == 1) {
    for (const InOut& t : list)
      if (t.in != t.out && t.bytes > 0) std::memcpy(t.out, t.in, static_cast<size_t>(t.bytes));
  } else if (const auto bytes = static_cast<size_t>(all.bytes()); bytes <= kSmall && 2 * bytes <= scratch_.size()) {
    const std::span<std::byte> data = scratch_.first(bytes);
    all.each_piece({0, all.bytes()}, [&](const InOut& t, int64_t, int64_t from, int64_t count) {
      std::memcpy(data.data() + from, t.in, static_cast<size_t>(count));
    });
    if (bytes > 0) double_up(data, scratch_.subspan(bytes, bytes), type, how);
    all.each_piece({0, all.bytes()}, [&](const InOut& t, int64_t, int64_t from, int64_t count) {
      std::memcpy(t.out, data.data() + from, static_cast<size_t>(count));
    });
  } else {
    ring(list, size_of(type), type, &how);
    ring(list, size_of(type), type, nullptr);
  }
}

// A chain from the root to its left neighbour: each rank passes on a chunk as soon as it has it.
void Collectives::broadcast(std::span<std::byte> data, int root) {
  const int n = group_.size(), rank = group_.rank(), place = (rank - root + n) % n;
  LATHE_CHECK(root >= 0 && root < n, "root {} of {}", root, n);
  const Inside inside(group_.position(), label_);
  if (n == 1) return;
  const auto chunk = static_cast<size_t>(flow().chunk);
  const int64_t ahead = flow().ahead, chunks = static_cast<int64_t>((data.size() + chunk - 1) / chunk);
  const auto piece = [&](int64_t i) {
    const size_t first = static_cast<size_t>(i) * chunk;
    return data.subspan(first, std::min(chunk, data.size() - first));
  };
  std::array<Message, Group::kInFlight> sends, receives;
  int64_t asked = 0;
  for (int64_t i = 0; i < chunks; ++i) {
    const auto slot = static_cast<size_t>(i % ahead);
    if (place > 0) {
      for (; asked < std::min(chunks, i + ahead); ++asked)
        receives[static_cast<size_t>(asked % ahead)] = group_.receive((rank + n - 1) % n, kTag, piece(asked));
      group_.wait(receives[slot]);
    }
    if (place == n - 1) continue;
    group_.wait(sends[slot]);
    sends[slot] = send((rank + 1) % n, piece(i));
  }
  for (Message& m : sends) group_.wait(m);
}

int64_t Collectives::tree_scratch(int64_t bytes, DType type, const BlockTree& tree) {
  const auto ranks = static_cast<int64_t>(tree.places.size()) - 1;
  return static_cast<int64_t>(tree.cut.size()) * part_of(bytes / size_of(type), ranks, 0).size() * size_of(type);
}

// Every rank gets a part of what all others have, adds it up in order, and all gather the parts.
void Collectives::tree_sum(const BlockTree& tree, std::span<const std::byte* const> own, std::span<std::byte> out,
                           DType type, std::span<std::byte> scratch) {
  const Inside inside(group_.position(), label_);
  const int n = group_.size(), rank = group_.rank();
  const int64_t size = size_of(type), elements = static_cast<int64_t>(out.size()) / size;
  struct Piece {
    size_t first, bytes;
  };
  const auto piece = [&](int r) {
    const Part p = part(elements, r);
    return Piece{static_cast<size_t>(p.first * size), static_cast<size_t>(p.size() * size)};
  };
  const Piece mine = piece(rank);
  const auto slot = [&](size_t i) { return scratch.subspan(i * mine.bytes, mine.bytes); };
  const auto first_of = [&](int r) { return tree.places[static_cast<size_t>(r)]; };
  for (size_t i = 0; i < own.size() && mine.bytes > 0; ++i)
    std::memcpy(slot(first_of(rank) + i).data(), own[i] + mine.first, mine.bytes);
  for (int distance = 1; distance < n; ++distance) {
    const int to = (rank + distance) % n, from = (rank + n - distance) % n;
    const Piece theirs = piece(to);
    std::array<Message, Group::kInFlight> sends, receives;
    const size_t incoming = tree.sums_of(from);
    LATHE_CHECK(incoming <= receives.size() && own.size() <= sends.size(), "{} and {} sums", incoming, own.size());
    for (size_t i = 0; i < incoming; ++i) receives[i] = group_.receive(from, kTag, slot(first_of(from) + i));
    for (size_t i = 0; i < own.size(); ++i) sends[i] = send(to, {own[i] + theirs.first, theirs.bytes});
    for (size_t i = 0; i < incoming; ++i) group_.wait(receives[i]);
    for (size_t i = 0; i < own.size(); ++i) group_.wait(sends[i]);
  }
  const size_t sum = fold_tree(
      tree.blocks, tree.cut, [](size_t i) { return i; },
      [&](size_t a, size_t b) {
        reduce_into(slot(a), slot(b), type, Reduce::sum);
        return a;
      });
  if (mine.bytes > 0) std::memcpy(out.data() + mine.first, slot(sum).data(), mine.bytes);
  gather(out, size);
}

// Dissemination: in turn t a rank hears of 2^t others.
void Collectives::barrier() {
  const int n = group_.size(), rank = group_.rank();
  const Inside inside(group_.position(), label_);
  std::byte out{}, in{};
  for (int distance = 1; distance < n; distance *= 2) {
    Message from = group_.receive((rank + n - distance) % n, kTag, {&in, 1});
    Message to = send((rank + distance) % n, {&out, 1});
    group_.wait(to);
    group_.wait(from);
  }
}

}  // namespace lathe::comm
