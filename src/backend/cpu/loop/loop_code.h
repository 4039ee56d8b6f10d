// A section of a loop program, compiled for evaluation by blocks: the flat domain is cut into runs of at most block()
// points, and every instruction works on a whole run. Inputs that are dense over the domain are read in place; others
// are spread into a register first (once per task where they repeat with the block). Results go straight to their
// output where that is safe.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/loop/loop_ops.h"

namespace lathe::cpu {

// Where a section reads and writes. Empty spans: compile only, to learn whether the section fits.
struct LoopPointers {
  std::span<std::byte* const> in;
  std::span<std::byte* const> out;
  std::byte* reduced = nullptr;  // what the tail reads as kReducedArg, dense
  DType reduced_dtype = DType::f32;
};

// Registers and pointers of one thread while it evaluates. Lives on the stack; never initialised as a whole.
struct LoopFrame {
  static constexpr int64_t kSlotBytes = 64 << 10;
  static constexpr int kValues = 512;
  alignas(64) std::byte slots[kSlotBytes];
  void* at[kValues];
};

class LoopCode {
 public:
  // `keep`: the instruction whose values run() returns, or -1.
  LoopCode(const LoopSection&, const Shape& domain, int32_t keep, const LoopPointers&);

  const std::string& unsupported() const { return unsupported_; }  // why it cannot run; "" when it can
  int64_t numel() const { return numel_; }
  int64_t block() const { return block_; }
  int64_t period() const { return period_; }  // blocks that begin at multiples of it run faster

  int64_t keep_size() const { return keep_size_; }  // bytes of one kept value

  // Before the first block of a task whose blocks have at most n points.
  void enter(LoopFrame&, int64_t n) const;
  // Evaluates points [begin, begin + n), n <= block(), and stores results; returns the kept values.
  const void* run(LoopFrame&, int64_t begin, int64_t n) const;

 private:
  struct Read {
    int value = 0;  // where the pointer or the register is
    DType dtype = DType::f32;
    const std::byte* base = nullptr;
    enum class Kind { dense, periodic, general } kind = Kind::dense;
    int64_t period = 1;
    int64_t pattern_slot = -1;  // periodic: holds one block from a multiple of the period on
    int64_t slot = -1;          // dense but packed, saved, periodic, general: the values
    bool to_output = false;     // spread straight into the store of the same value
    bool save = false;          // copied before anything is stored
    int ndim = 0;               // dimensions after joining, outermost first
    std::array<int64_t, Shape::kMaxDims> size{}, stride{};
  };
  struct Step {
    LoopFn fn;
    int y, a, b, c;
  };
  struct Store {
    int value;
    DType dtype;
    std::byte* base;
  };
  struct Constant {
    int value;
    int64_t offset;  // in constants_
  };

  static int64_t extent(const Read&);  // bytes from the first to the last element
  void classify(const LoopRead&, const Shape& domain, Read&) const;
  void choose_block(int slots, int64_t width);
  const void* spread(const Read&, int64_t begin, int64_t n, void* dst, bool must_copy) const;
  std::byte* slot_address(LoopFrame& f, int64_t slot) const { return f.slots + slot * block_ * slot_width_; }

  std::string unsupported_;
  int64_t numel_ = 0, block_ = 0, period_ = 1, slot_width_ = 4;
  int keep_ = -1;
  int64_t keep_size_ = 0;
  std::vector<Read> reads_;
  std::vector<Step> steps_;
  std::vector<Store> direct_, deferred_;
  std::vector<Constant> constants_at_;
  std::vector<std::byte> constants_;
  std::vector<int64_t> slot_of_;  // by value; -1: not in a slot
  const LoopSimd* simd_;
};

}  // namespace lathe::cpu
