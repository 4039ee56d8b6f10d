#include "backend/kernels/loop_nest.h"

#include <algorithm>

#include "base/error.h"

namespace lathe {
namespace {

// Drops axes of size 1 and merges neighbours of one class whose strides continue each other in every access.
class Merge {
 public:
  Merge(const Shape& domain, const Ints& axes) {
    for (int d = 0; d < domain.ndim(); ++d) {
      sizes_.push_back(domain[d]);
      is_reduced_.push_back(std::ranges::find(axes, d) != axes.end());
    }
  }

  void add(Ints* strides) { strides_.push_back(strides); }

  void run() {
    for (size_t d = sizes_.size(); d-- > 0;)
      if (sizes_[d] == 1) erase(d);
    for (size_t d = sizes_.size(); d-- > 1;) {
      const size_t outer = d - 1;
      bool joins = is_reduced_[outer] == is_reduced_[d];
      for (const Ints* s : strides_) joins = joins && (*s)[outer] == (*s)[d] * sizes_[d];
      if (!joins) continue;
      sizes_[d] *= sizes_[outer];
      erase(outer);
    }
  }

  // One point as a row of one element: it shares the text of flat loops.
  void make_flat() {
    sizes_ = {1};
    is_reduced_ = {false};
    for (Ints* s : strides_) *s = {1};
  }

  bool inner_reduced() const { return !is_reduced_.empty() && is_reduced_.back(); }
  Ints pick(const Ints& values, bool reduced) const {
    Ints out;
    for (size_t d = 0; d < values.size(); ++d)
      if (is_reduced_[d] == reduced) out.push_back(values[d]);
    return out;
  }
  const Ints& sizes() const { return sizes_; }

 private:
  void erase(size_t d) {
    const auto at = static_cast<std::ptrdiff_t>(d);
    sizes_.erase(sizes_.begin() + at);
    is_reduced_.erase(is_reduced_.begin() + at);
    for (Ints* s : strides_) s->erase(s->begin() + at);
  }

  Ints sizes_;
  std::vector<bool> is_reduced_;
  std::vector<Ints*> strides_;
};

struct Raw {
  LoopAccess access;
  Ints strides;
};

void merge(LoopNest& nest, const Shape& domain, const Ints& axes, std::vector<Raw> reads, std::vector<Raw> writes,
           std::vector<Raw> tail_reads) {
  Merge m(domain, axes);
  for (auto* list : {&reads, &writes, &tail_reads})
    for (Raw& r : *list) m.add(&r.strides);
  m.run();
  if (axes.empty() && m.sizes().empty()) m.make_flat();
  nest.kept = m.pick(m.sizes(), false);
  nest.reduced = m.pick(m.sizes(), true);
  nest.inner_reduced = m.inner_reduced();
  const auto finish = [&](std::vector<Raw>& from, std::vector<LoopAccess>& to) {
    for (Raw& r : from) {
      r.access.kept = m.pick(r.strides, false);
      r.access.reduced = m.pick(r.strides, true);
      to.push_back(std::move(r.access));
    }
  };
  finish(reads, nest.reads);
  finish(writes, nest.writes);
  finish(tail_reads, nest.tail_reads);
}

}  // namespace

LoopNest make_nest(const LoopProgram& p) {
  LoopNest nest;
  nest.map = p.map.instrs;
  nest.tail = p.tail.instrs;
  nest.tail_stores = p.tail.stores;
  nest.reduce = p.reduce;
  nest.reduce_instr = p.reduce_instr;
  nest.reduce_dtype = p.reduce_dtype;
  std::vector<Raw> reads, writes, tail_reads;
  for (const LoopRead& r : p.map.reads) reads.push_back({{r.dtype, r.input, 0, {}, {}}, r.strides});
  for (const LoopStore& s : p.map.stores) {
    writes.push_back({{s.dtype, s.output, 0, {}, {}}, p.domain.strides()});
    nest.map_stores.push_back(s.instr);
  }
  for (const LoopRead& r : p.tail.reads) {
    // Over a reduced axis the tail does not move; a zero stride there never blocks merging of kept axes.
    Ints strides = r.strides;
    for (int64_t a : p.axes) strides[static_cast<size_t>(a)] = 0;
    tail_reads.push_back({{r.dtype, r.input, 0, {}, {}}, std::move(strides)});
  }
  merge(nest, p.domain, p.axes, std::move(reads), std::move(writes), std::move(tail_reads));
  return nest;
}

LoopNest copy_nest(DType dtype, const Shape& box, int input, Ints read_strides, int64_t read_offset, int output,
                   Ints write_strides, int64_t write_offset) {
  LoopNest nest;
  nest.map = {{.op = ScalarOp::arg, .a = 0, .dtype = dtype, .from = dtype}};
  nest.map_stores = {0};
  merge(nest, box, {}, {{{dtype, input, read_offset, {}, {}}, std::move(read_strides)}},
        {{{dtype, output, write_offset, {}, {}}, std::move(write_strides)}}, {});
  return nest;
}

}  // namespace lathe
