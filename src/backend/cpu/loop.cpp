#include "backend/cpu/loop.h"

#include <algorithm>

#include "backend/cpu/families.h"
#include "backend/cpu/host_kernel.h"
#include "base/checked.h"
#include "ops/elementwise.h"

namespace lathe::cpu {
namespace {

constexpr int64_t kTask = 32768;  // points per task of a map

// The tail reads accumulators: where they are wider than the reduced type, a conversion comes first.
LoopSection tail_of(const LoopProgram& p, DType accumulator) {
  LoopSection tail = p.tail;
  if (accumulator == p.reduce_dtype) return tail;
  std::vector<ScalarInstr> out;
  std::vector<int32_t> at;
  for (ScalarInstr i : p.tail.instrs) {
    const auto moved = [&](int32_t j) { return j < 0 ? j : at[static_cast<size_t>(j)]; };
    if (i.op == ScalarOp::arg) {
      const bool reduced = i.a == kReducedArg;
      if (reduced) i.dtype = i.from = accumulator;
      out.push_back(i);
      if (reduced)
        out.push_back({.op = ScalarOp::convert,
                       .a = static_cast<int32_t>(out.size() - 1),
                       .dtype = p.reduce_dtype,
                       .from = accumulator});
    } else {
      i.a = moved(i.a);
      i.b = moved(i.b);
      i.c = moved(i.c);
      out.push_back(i);
    }
    at.push_back(static_cast<int32_t>(out.size() - 1));
  }
  tail.instrs = std::move(out);
  for (LoopStore& s : tail.stores) s.instr = at[static_cast<size_t>(s.instr)];
  return tail;
}

// The tail is nothing but one store of the reduced value.
bool is_plain(const LoopSection& tail) {
  return tail.instrs.size() == 1 && tail.instrs[0].a == kReducedArg && tail.instrs[0].op == ScalarOp::arg &&
         tail.stores.size() == 1 && tail.stores[0].dtype == tail.instrs[0].dtype;
}

DType accumulator_of(DType t) { return is_float(t) ? t : DType::i64; }

}  // namespace

int64_t Loop::workspace(const LoopProgram& p) {
  if (p.reduce == LoopReduce::none) return 0;
  const DType accumulator = accumulator_of(p.reduce_dtype);
  const auto stages = reduce_stages(p.domain, p.axes);
  int64_t bytes = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    if (i + 1 == stages.size() && is_plain(tail_of(p, accumulator))) break;
    bytes += round_up(stages[i].result_numel() * size_of(accumulator), 64);
  }
  return bytes;
}

std::string Loop::unsupported(const LoopProgram& p) {
  const LoopCode map(p.map, p.domain, p.reduce_instr, {});
  if (!map.unsupported().empty() || p.reduce == LoopReduce::none) return map.unsupported();
  if (p.reduce_dtype == DType::b8) return "a reduction of bool";
  const DType accumulator = accumulator_of(p.reduce_dtype);
  return LoopCode(tail_of(p, accumulator), p.reduced, -1, LoopPointers{{}, {}, nullptr, accumulator}).unsupported();
}

Loop::Loop(const LoopProgram& p, std::span<std::byte* const> in, std::span<std::byte* const> out, std::byte* workspace)
    : reduce_(p.reduce) {
  map_ = std::make_unique<LoopCode>(p.map, p.domain, p.reduce_instr, LoopPointers{in, out, nullptr, DType::f32});
  if (reduce_ == LoopReduce::none) return;
  first_ = find_loop_accumulate(reduce_, p.reduce_dtype);
  next_ = find_loop_accumulate(reduce_, first_.dtype);
  stages_ = reduce_stages(p.domain, p.axes);
  const LoopSection tail = tail_of(p, first_.dtype);
  std::byte* at = workspace;
  for (size_t i = 0; i < stages_.size(); ++i) {
    if (i + 1 == stages_.size() && is_plain(tail)) {
      results_.push_back(out[static_cast<size_t>(tail.stores[0].output)]);
      return;
    }
    results_.push_back(at);
    at += round_up(stages_[i].result_numel() * size_of(first_.dtype), 64);
  }
  tail_ = std::make_unique<LoopCode>(tail, p.reduced, -1, LoopPointers{in, out, results_.back(), first_.dtype});
}

void Loop::run_map(ThreadPool& pool, const LoopCode& code) const {
  const int64_t block = code.block();
  pool.run_blocks(code.numel(), round_up(kTask, block), [&](int64_t begin, int64_t end) {
    LoopFrame frame;
    code.enter(frame, end - begin);
    for (int64_t i = begin; i < end; i += block) code.run(frame, i, std::min(block, end - i));
  });
}

void Loop::run(ThreadPool& pool) const {
  if (reduce_ == LoopReduce::none) {
    run_map(pool, *map_);
    return;
  }
  for (size_t i = 0; i < stages_.size(); ++i)
    run_reduce_stage(pool, stages_[i], i == 0 ? map_.get() : nullptr, i == 0 ? nullptr : results_[i - 1],
                     i == 0 ? first_ : next_, next_, results_[i]);
  if (tail_) run_map(pool, *tail_);
}

namespace {

std::string accepts(const Site& site) {
  std::string reason;
  const auto program = lower_loop(site.node, site.in, &reason);
  return program ? Loop::unsupported(*program) : reason;
}

int64_t workspace(const Site& site) { return Loop::workspace(*lower_loop(site.node, site.in)); }

std::unique_ptr<Kernel> bind(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  auto loop = std::make_shared<const Loop>(*lower_loop(site.node, site.in), host.in, host.out, host.workspace.data());
  return host_kernel([loop, &pool = host.pool] { loop->run(pool); });
}

}  // namespace

std::vector<KernelTable::Row> loop_rows() {
  const Candidate candidate{"cpu_loop", accepts, workspace, bind};
  std::vector<KernelTable::Row> rows;
  for (const OpDef* op : elementwise_ops()) rows.push_back({op->name(), candidate});
  for (std::string_view op : {"cast", "broadcast", "full", "reduce_sum", "reduce_max", "fused"})
    rows.push_back({op, candidate});
  return rows;
}

}  // namespace lathe::cpu
