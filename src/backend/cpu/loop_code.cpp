#include "backend/cpu/loop_code.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/checked.h"
#include "base/error.h"

namespace lathe::cpu {
namespace {

// Registers should share the first-level cache with what is read in place.
constexpr int64_t kFastSlotBytes = 24 << 10;
constexpr int64_t kMaxBlock = 1024;
constexpr int64_t kMinBlock = 64;
constexpr int64_t kLanes = 16;  // a block of a multiple of this has no remainder on any instruction set

// Copies [begin, begin + n) of the domain from an input with the given joined dimensions (innermost stride 0 or 1).
template <class T>
void spread_copy(const T* base, std::span<const int64_t> size, std::span<const int64_t> stride, int64_t begin,
                 int64_t n, T* dst, const LoopSimd& simd) {
  const int last = static_cast<int>(size.size()) - 1;
  const int64_t run = size[static_cast<size_t>(last)], inner = stride[static_cast<size_t>(last)];
  int64_t coordinate[Shape::kMaxDims];
  int64_t rest = begin / run, at = 0, pos = begin % run;
  for (int d = last - 1; d >= 0; --d) {
    const size_t k = static_cast<size_t>(d);
    coordinate[d] = rest % size[k];
    rest /= size[k];
    at += coordinate[d] * stride[k];
  }
  while (n > 0) {
    const int64_t count = std::min(n, run - pos);
    if (inner == 0) {
      if constexpr (std::is_same_v<T, uint32_t>)
        simd.fill(dst, base[at], count);
      else
        std::fill_n(dst, count, base[at]);
    } else {
      std::memcpy(dst, base + at + pos, static_cast<size_t>(count) * sizeof(T));
    }
    dst += count;
    n -= count;
    pos = 0;
    for (int d = last - 1; d >= 0; --d) {
      const size_t k = static_cast<size_t>(d);
      at += stride[k];
      if (++coordinate[d] < size[k]) break;
      at -= size[k] * stride[k];
      coordinate[d] = 0;
    }
  }
}

void fill_constant(std::byte* dst, DType t, double value, int64_t n) {
  if (t == DType::b8) {
    std::fill_n(reinterpret_cast<uint32_t*>(dst), n, value != 0 ? ~uint32_t{0} : 0u);
    return;
  }
  dispatch_compute(t, [&](auto v) {
    using T = decltype(v);
    std::fill_n(reinterpret_cast<T*>(dst), n, static_cast<T>(round_to(t, value)));
  });
}

bool overlap(const std::byte* a, int64_t na, const std::byte* b, int64_t nb) { return a < b + nb && b < a + na; }

}  // namespace

int64_t LoopCode::extent(const Read& r) {
  int64_t last = 0;
  for (size_t k = 0; k < static_cast<size_t>(r.ndim); ++k) last += (r.size[k] - 1) * r.stride[k];
  return (last + 1) * size_of(r.dtype);
}

void LoopCode::classify(const LoopRead& read, const Shape& domain, Read& out) const {
  out.ndim = 0;
  for (int d = 0; d < domain.ndim(); ++d) {
    const int64_t size = domain[d], stride = read.strides[static_cast<size_t>(d)];
    if (size == 1) continue;
    const size_t k = static_cast<size_t>(out.ndim);
    if (out.ndim > 0 && out.stride[k - 1] == stride * size) {  // also joins two repeated dimensions: 0 == 0 * size
      out.size[k - 1] *= size;
      out.stride[k - 1] = stride;
    } else {
      out.size[k] = size;
      out.stride[k] = stride;
      ++out.ndim;
    }
  }
  if (out.ndim == 0) {
    out.ndim = 1;
    out.size[0] = 1;
    out.stride[0] = 1;
  }
  const int64_t first = out.stride[0];
  if (out.ndim == 1) {
    out.kind = first == 0 ? Read::Kind::periodic : Read::Kind::dense;
    out.period = 1;
  } else if (first == 0) {
    out.kind = Read::Kind::periodic;
    out.period = numel_ / std::max<int64_t>(1, out.size[0]);
  } else {
    out.kind = Read::Kind::general;
  }
}

// The longest block for the number of registers, a multiple of the longest repeating pattern that fits.
void LoopCode::choose_block(int slots, int64_t width) {
  slot_width_ = width;
  int64_t most = kMaxBlock;
  while (most > kMinBlock && slots * most * width > kFastSlotBytes) most /= 2;
  if (slots * most * width > LoopFrame::kSlotBytes) {
    unsupported_ = fmt::format("needs {} registers, more than one thread has", slots);
    return;
  }
  period_ = 1;
  for (const Read& r : reads_)
    if (r.kind == Read::Kind::periodic && r.period <= most) period_ = std::max(period_, r.period);
  block_ = most / period_ * period_;
  if (period_ * kLanes <= most) block_ = most / (period_ * kLanes) * (period_ * kLanes);
  for (Read& r : reads_)
    if (r.kind == Read::Kind::periodic && r.period > most) r.kind = Read::Kind::general;
}

LoopCode::LoopCode(const LoopSection& section, const Shape& domain, int32_t keep, const LoopPointers& pointers)
    : numel_(domain.numel()), keep_(keep), simd_(&loop_simd()) {
  const int count = static_cast<int>(section.instrs.size());
  if (count > LoopFrame::kValues) {
    unsupported_ = fmt::format("{} instructions, more than {}", count, LoopFrame::kValues);
    return;
  }
  const auto instr = [&](int v) -> const ScalarInstr& { return section.instrs[static_cast<size_t>(v)]; };
  const auto operands = [&](int v) {
    const ScalarInstr& i = instr(v);
    std::array<int32_t, 3> x{-1, -1, -1};
    const int n = arity(i.op);
    if (n > 0) x[0] = i.a;
    if (n > 1) x[1] = i.b;
    if (n > 2) x[2] = i.c;
    return x;
  };
  std::vector<int> last_use(static_cast<size_t>(count), -1);
  for (int v = 0; v < count; ++v)
    for (int32_t x : operands(v))
      if (x >= 0) last_use[static_cast<size_t>(x)] = v;
  // Stored and kept values live to the end of the block.
  for (const LoopStore& s : section.stores) last_use[static_cast<size_t>(s.instr)] = count;
  if (keep >= 0) {
    last_use[static_cast<size_t>(keep)] = count;
    keep_size_ = register_size(instr(keep).dtype);
  }

  int64_t width = 4;
  std::vector<int> read_of(static_cast<size_t>(count), -1);
  for (int v = 0; v < count; ++v) {
    const ScalarInstr& i = instr(v);
    width = std::max(width, register_size(i.dtype));
    if (i.op == ScalarOp::arg) {
      Read r;
      r.value = v;
      r.dtype = i.dtype;
      if (i.a == kReducedArg) {
        r.base = pointers.reduced;
        r.dtype = pointers.reduced_dtype;
        r.ndim = 1;
        r.size[0] = numel_;
        r.stride[0] = 1;
      } else {
        const LoopRead& read = section.reads[static_cast<size_t>(i.a)];
        classify(read, domain, r);
        r.dtype = read.dtype;
        if (!pointers.in.empty()) r.base = pointers.in[static_cast<size_t>(read.input)];
      }
      read_of[static_cast<size_t>(v)] = static_cast<int>(reads_.size());
      reads_.push_back(r);
    } else if (i.op != ScalarOp::constant && !find_loop_fn(i.op, i.dtype, i.from)) {
      unsupported_ = fmt::format("no {} of {}", to_string(i.op), to_string(i.from));
      return;
    }
  }

  // A result may go straight to its output when nothing reads memory that it overwrites after that.
  std::vector<std::byte*> direct(static_cast<size_t>(count), nullptr);
  for (const LoopStore& s : section.stores) {
    const size_t v = static_cast<size_t>(s.instr);
    if (pointers.out.empty()) continue;
    std::byte* base = pointers.out[static_cast<size_t>(s.output)];
    const ScalarInstr& i = instr(s.instr);
    bool safe = !direct[v] && !is_packed(s.dtype) && i.op != ScalarOp::constant;
    if (i.op == ScalarOp::arg) safe = safe && reads_[static_cast<size_t>(read_of[v])].kind == Read::Kind::general;
    const int64_t bytes = numel_ * size_of(s.dtype);
    for (const Read& r : reads_)
      if (last_use[static_cast<size_t>(r.value)] > s.instr && r.value != s.instr)
        safe = safe && !overlap(base, bytes, r.base, extent(r));
    if (safe) {
      direct[v] = base;
      direct_.push_back({s.instr, s.dtype, base});
    } else {
      deferred_.push_back({s.instr, s.dtype, base});
    }
  }
  // An input that is stored elsewhere is saved before the stores of the block, if one of them overwrites it.
  for (const Store& s : deferred_) {
    if (read_of[static_cast<size_t>(s.value)] < 0) continue;
    Read& r = reads_[static_cast<size_t>(read_of[static_cast<size_t>(s.value)])];
    for (const LoopStore& other : section.stores) {
      std::byte* base = pointers.out[static_cast<size_t>(other.output)];
      r.save = r.save || (base != s.base && overlap(base, numel_ * size_of(other.dtype), r.base, extent(r)));
    }
  }

  // Registers by linear scan. Patterns stay for the whole task.
  slot_of_.assign(static_cast<size_t>(count), -1);
  std::vector<int64_t> free;
  int slots = 0;
  const auto take = [&] {
    if (free.empty()) return static_cast<int64_t>(slots++);
    const int64_t s = free.back();
    free.pop_back();
    return s;
  };
  for (Read& r : reads_)
    if (r.kind == Read::Kind::periodic) r.pattern_slot = take();
  for (Read& r : reads_) {
    r.to_output = direct[static_cast<size_t>(r.value)] != nullptr;
    if (!r.to_output && (r.kind != Read::Kind::dense || is_packed(r.dtype) || r.save)) r.slot = take();
  }
  std::vector<ScalarInstr> constants;
  for (int v = 0; v < count; ++v) {
    const ScalarInstr& i = instr(v);
    const size_t k = static_cast<size_t>(v);
    if (i.op == ScalarOp::arg) continue;
    if (i.op == ScalarOp::constant) {
      constants_at_.push_back({v, 0});
      continue;
    }
    // An operand that dies here may give its register to the result, if their values have one size.
    const auto release = [&](bool same_size) {
      const auto x = operands(v);
      for (size_t n = 0; n < 3; ++n) {
        if (x[n] < 0 || last_use[static_cast<size_t>(x[n])] != v) continue;
        if (std::find(x.begin(), x.begin() + n, x[n]) != x.begin() + n) continue;
        int64_t& slot = slot_of_[static_cast<size_t>(x[n])];
        if (slot >= 0 && (register_size(instr(x[n]).dtype) == register_size(i.dtype)) == same_size)
          free.push_back(slot);
      }
    };
    release(true);
    if (!direct[k]) slot_of_[k] = take();
    release(false);
    const auto x = operands(v);
    steps_.push_back({find_loop_fn(i.op, i.dtype, i.from), v, x[0], x[1], x[2]});
    if (last_use[k] < 0 && slot_of_[k] >= 0) free.push_back(slot_of_[k]);
  }
  choose_block(slots, width);
  if (!unsupported_.empty()) return;

  int64_t bytes = 0;
  for (Constant& c : constants_at_) {
    c.offset = bytes;
    bytes += round_up(block_ * register_size(instr(c.value).dtype), 64);
  }
  constants_.resize(static_cast<size_t>(bytes));
  for (const Constant& c : constants_at_)
    fill_constant(constants_.data() + c.offset, instr(c.value).dtype, instr(c.value).value, block_);
}

// The values of a read over [begin, begin + n): in place where they lie in one run of memory, otherwise copied to dst.
const void* LoopCode::spread(const Read& r, int64_t begin, int64_t n, void* dst, bool must_copy) const {
  const size_t last = static_cast<size_t>(r.ndim - 1);
  const std::span<const int64_t> size(r.size.data(), last + 1), stride(r.stride.data(), last + 1);
  const bool contiguous = stride[last] == 1 && begin % size[last] + n <= size[last];
  if (contiguous && (is_16bit(r.dtype) || (!must_copy && r.dtype != DType::b8))) {
    int64_t rest = begin / size[last], at = begin % size[last];
    for (int d = r.ndim - 2; d >= 0; --d) {
      const size_t k = static_cast<size_t>(d);
      at += rest % size[k] * stride[k];
      rest /= size[k];
    }
    const std::byte* address = r.base + at * size_of(r.dtype);
    if (!is_16bit(r.dtype)) return address;
    (r.dtype == DType::f16 ? simd_->load_f16 : simd_->load_bf16)(dst, address, nullptr, nullptr, n);
    return dst;
  }
  if (r.dtype == DType::b8) {
    uint8_t bytes[kMaxBlock];
    spread_copy(reinterpret_cast<const uint8_t*>(r.base), size, stride, begin, n, bytes, *simd_);
    simd_->load_mask(dst, bytes, nullptr, nullptr, n);
    return dst;
  }
  if (is_16bit(r.dtype)) {
    uint16_t bits[kMaxBlock];
    spread_copy(reinterpret_cast<const uint16_t*>(r.base), size, stride, begin, n, bits, *simd_);
    (r.dtype == DType::f16 ? simd_->load_f16 : simd_->load_bf16)(dst, bits, nullptr, nullptr, n);
    return dst;
  }
  switch (size_of(r.dtype)) {
    case 1:
      spread_copy(reinterpret_cast<const uint8_t*>(r.base), size, stride, begin, n, static_cast<uint8_t*>(dst), *simd_);
      break;
    case 4:
      spread_copy(reinterpret_cast<const uint32_t*>(r.base), size, stride, begin, n, static_cast<uint32_t*>(dst),
                  *simd_);
      break;
    default:
      spread_copy(reinterpret_cast<const uint64_t*>(r.base), size, stride, begin, n, static_cast<uint64_t*>(dst),
                  *simd_);
      break;
  }
  return dst;
}

void LoopCode::enter(LoopFrame& f, int64_t n) const {
  for (size_t v = 0; v < slot_of_.size(); ++v)
    if (slot_of_[v] >= 0) f.at[v] = slot_address(f, slot_of_[v]);
  for (const Constant& c : constants_at_) f.at[c.value] = const_cast<std::byte*>(constants_.data() + c.offset);
  for (const Read& r : reads_)
    if (r.kind == Read::Kind::periodic)
      spread(r, 0, std::min({n, block_, numel_}), slot_address(f, r.pattern_slot), true);
}

const void* LoopCode::run(LoopFrame& f, int64_t begin, int64_t n) const {
  for (const Store& s : direct_) f.at[s.value] = s.base + begin * size_of(s.dtype);
  for (const Read& r : reads_) {
    if (r.kind == Read::Kind::dense && !is_packed(r.dtype) && !r.save) {
      f.at[r.value] = const_cast<std::byte*>(r.base) + begin * size_of(r.dtype);
    } else if (r.kind == Read::Kind::periodic && begin % r.period == 0) {
      f.at[r.value] = slot_address(f, r.pattern_slot);
    } else if (r.to_output) {
      spread(r, begin, n, f.at[r.value], true);
    } else {
      f.at[r.value] = const_cast<void*>(spread(r, begin, n, slot_address(f, r.slot), r.save));
    }
  }
  for (const Step& s : steps_)
    s.fn(f.at[s.y], f.at[s.a], s.b < 0 ? nullptr : f.at[s.b], s.c < 0 ? nullptr : f.at[s.c], n);
  for (const Store& s : deferred_) {
    std::byte* dst = s.base + begin * size_of(s.dtype);
    if (s.dtype == DType::b8)
      simd_->store_mask(dst, f.at[s.value], nullptr, nullptr, n);
    else if (s.dtype == DType::f16)
      simd_->store_f16(dst, f.at[s.value], nullptr, nullptr, n);
    else if (s.dtype == DType::bf16)
      simd_->store_bf16(dst, f.at[s.value], nullptr, nullptr, n);
    else if (dst != f.at[s.value])
      std::memmove(dst, f.at[s.value], static_cast<size_t>(n * size_of(s.dtype)));
  }
  return keep_ >= 0 ? f.at[keep_] : nullptr;
}

}  // namespace lathe::cpu
