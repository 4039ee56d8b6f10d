// Collectives over a Group: what every rank calls, in the same order, with buffers of the same size.
//
// Several tensors go as one buffer: a list of them is their concatenation. What lies within one of them is sent from
// where it is; chunks that reach over a border go through scratch memory.
//
// Rings: a rank sends to its right neighbour and receives from its left one, in chunks of which several are under way.
// Bytes on the wire, of n ranks and a buffer of b bytes, per rank: all_reduce 2 b (n - 1) / n in 2 (n - 1) turns,
// reduce_scatter and all_gather half of that, broadcast b. Small buffers, whose time is that of the turns, are reduced
// by doubling: b log2(n) in log2(n) turns (base/traffic.h). Nothing is allocated after the constructor.
//
// Scratch memory is the object's own, or lent to it: the executor's, which is in the certificate.
#pragma once

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "base/block_tree.h"
#include "base/dtype.h"
#include "base/traffic.h"
#include "comm/group.h"
#include "comm/position.h"

namespace lathe::comm {

enum class Reduce { sum, max, min };

struct InOut {                    // One tensor of a list.
  const std::byte* in = nullptr;  // what this rank has
  std::byte* out = nullptr;       // where the result goes: the same place, or one apart from all inputs
  int64_t bytes = 0;              // of either, a multiple of an element
};

class Collectives {
 public:
  // The group outlives it. Its flow, or chunks of so many bytes, a multiple of 8.
  explicit Collectives(Group&, int64_t chunk = 0);
  Collectives(Group&, std::span<std::byte> scratch);  // the flow of the group; see lend()
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  // Scratch memory that outlives it: at least scratch_for() of each call.
  void lend(std::span<std::byte> scratch) { scratch_ = scratch; }
  // Bytes of scratch memory of an all_reduce or reduce_scatter among so many ranks, of a buffer of so many bytes that
  // is divided in units of `unit`; for any flow of a group.
  static int64_t scratch_for(int64_t bytes, int64_t unit, int64_t ranks);

  // What the next calls are about, for the position of this rank: a name that label() was given when kernels are bound.
  int32_t label(std::string_view name);  // "all_reduce of fc1"
  Collectives& at(int32_t label) {       // for the calls that follow
    label_ = label;
    return *this;
  }

  // Every rank has the reduction of all buffers. Whose elements are added first depends on the number of ranks; all
  // ranks get the same bits.
  void all_reduce(std::span<std::byte> data, DType, Reduce = Reduce::sum);
  void all_reduce(std::span<const InOut> list, DType, Reduce = Reduce::sum);  // the same of several tensors
  // Of part() of the buffer every rank has the reduction of all; the rest holds what is left of the work.
  // `unit`: bytes that are not divided, a multiple of an element; 0: one element.
  void reduce_scatter(std::span<std::byte> data, DType, Reduce = Reduce::sum, int64_t unit = 0);
  // Every rank has part() of all ranks, of units of so many bytes.
  void all_gather(std::span<std::byte> data, int64_t unit);
  void broadcast(std::span<std::byte> data, int root);  // every rank has the root's buffer
  // The sum of what all ranks have, on every rank, in the order of the tree. `own`: the sums that this rank brings, of
  // out.size() bytes each. `scratch`: tree_scratch() bytes.
  void tree_sum(const BlockTree&, std::span<const std::byte* const> own, std::span<std::byte> out, DType,
                std::span<std::byte> scratch);
  static int64_t tree_scratch(int64_t bytes, DType, const BlockTree&);  // for an `out` of so many bytes
  void barrier();                                                       // returns when every rank has called it

  Part part(int64_t units, int rank) const;   // the units (elements) of a buffer that are a rank's
  Group& group() const { return group_; }     // that it was made of
  int rank() const { return group_.rank(); }  // of the group
  int size() const { return group_.size(); }  // of the group

  int64_t sent_bytes() const { return sent_; }  // since the start

 private:
  static constexpr size_t kSmall = kSmallSum;  // bytes up to which a buffer is small

  Flow flow() const { return chunk_ > 0 ? Flow{chunk_, kFastFlow.ahead} : group_.flow(); }
  void ring(std::span<const InOut> list, int64_t unit, DType, const Reduce*);
  void gather(std::span<std::byte> data, int64_t unit);
  void double_up(std::span<std::byte> data, std::span<std::byte> other, DType, Reduce);
  Message send(int to, std::span<const std::byte>);

  Group& group_;
  const int64_t chunk_;  // 0: the group's
  std::vector<std::byte> own_;
  std::span<std::byte> scratch_;
  int64_t sent_ = 0;
  int32_t label_ = Position::kNoLabel;
};

// a = a and b, element by element; the definition of a reduction.
void reduce_into(std::span<std::byte> a, std::span<const std::byte> b, DType, Reduce);

}  // namespace lathe::comm
