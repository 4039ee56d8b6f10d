// Collectives over a Group: what every rank calls, in the same order, with buffers of the same size.
//
// Rings: a rank sends to its right neighbour and receives from its left one, in chunks of which several are under way.
// Bytes on the wire, of n ranks and a buffer of b bytes, per rank: all_reduce 2 b (n - 1) / n in 2 (n - 1) turns,
// reduce_scatter and all_gather half of that, broadcast b. Nothing is allocated after the constructor.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/part.h"
#include "comm/group.h"

namespace lathe::comm {

enum class Reduce { sum, max, min };

class Collectives {
 public:
  explicit Collectives(Group&, size_t chunk = 256 * 1024);  // the group outlives it; bytes of a chunk, a multiple of 8

  // Every rank has the reduction of all buffers. Whose elements are added first depends on the number of ranks; all
  // ranks get the same bits.
  void all_reduce(std::span<std::byte> data, DType, Reduce = Reduce::sum);
  // Of part() of the buffer every rank has the reduction of all; the rest holds what is left of the work.
  // `unit`: bytes that are not divided, a multiple of an element; 0: one element.
  void reduce_scatter(std::span<std::byte> data, DType, Reduce = Reduce::sum, int64_t unit = 0);
  // Every rank has part() of all ranks, of units of so many bytes.
  void all_gather(std::span<std::byte> data, int64_t unit);
  void broadcast(std::span<std::byte> data, int root);  // every rank has the root's buffer
  void barrier();                                       // returns when every rank has called it

  Part part(int64_t units, int rank) const;   // the units (elements) of a buffer that are a rank's
  int rank() const { return group_.rank(); }  // of the group
  int size() const { return group_.size(); }  // of the group

  int64_t sent_bytes() const { return sent_; }                                     // since the start
  int64_t scratch_bytes() const { return static_cast<int64_t>(scratch_.size()); }  // for certificates

 private:
  static constexpr int kAhead = 4;  // chunks under way in each direction

  void ring(std::span<std::byte> data, int64_t unit, DType, const Reduce*);
  Message send(int to, std::span<const std::byte>);

  Group& group_;
  const size_t chunk_;
  std::vector<std::byte> scratch_;
  int64_t sent_ = 0;
};

// a = a and b, element by element; the definition of a reduction.
void reduce_into(std::span<std::byte> a, std::span<const std::byte> b, DType, Reduce);

}  // namespace lathe::comm
