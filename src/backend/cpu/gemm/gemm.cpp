#include "backend/cpu/gemm/gemm.h"

#include <algorithm>
#include <type_traits>

#include "backend/cpu/gemm/gemm_image.h"
#include "backend/cpu/gemm/gemm_kernel.h"
#include "backend/cpu/gemm/gemm_plan.h"
#include "base/checked.h"
#include "base/error.h"

namespace lathe::cpu {

namespace {

constexpr int64_t kPackRows = 192;      // rows of a shared operand packed by one task
constexpr int64_t kPostColumns = 256;   // columns after which the post callback runs, while they are in the cache
constexpr int64_t kMaxBlockRows = 512;  // of one call of the multiply kernel when rows have addresses of their own

int64_t batch_offset(const GemmShape& s, int64_t b, int64_t stride, int64_t inner_stride) {
  return b / s.batch_inner * stride + b % s.batch_inner * inner_stride;
}

using Kind = Operand<float>::Kind;

// Floats of A from which the kernel that reads it in place also prefetches it.
constexpr int64_t kNearFloats = 64 << 10;

// Whether the kernel reads an operand where it lies instead of packing it first. Measured, not derived:
// A with contiguous k costs the kernel nothing, each row being a stream; packing was 3 to 10 % slower on all shapes.
// A with strided k touches a line per k: only when it is small, or used by no more than two panels of B.
bool read_a_in_place(const Operand<float>& a, const GemmShape& s, const Geometry& g) {
  if (a.kind == Kind::k_contiguous) return true;
  return a.kind == Kind::k_strided && (s.n <= 2 * g.nr() || s.m * s.k <= (64 << 10));
}

// B is walked along k, each row of a panel in other lines: only when it stays near, or is used a few times.
bool read_b_in_place(const Operand<float>& b, const GemmShape& s, const Geometry& g) {
  if (b.kind != Kind::k_strided || s.n % g.lanes != 0) return false;
  return s.m <= 2 * g.mr || s.n * s.k <= (8 << 10) || (s.m <= 256 && s.n * s.k <= g.near_b);
}

// One product of the batch: everything the tasks need.
struct Product {
  const GemmArgs<float>& args;
  const GemmPlan& plan;
  const GemmKernels& kernels;
  float* workspace;
  int64_t batch = 0;
  Operand<float> a, b;
  float* c = nullptr;
  bool plain_a, plain_b;  // read where it lies, not packed

  Product(const GemmArgs<float>& args_in, const GemmPlan& plan_in, InPlace in_place, const GemmKernels& kernels_in)
      : args(args_in),
        plan(plan_in),
        kernels(kernels_in),
        workspace(reinterpret_cast<float*>(args_in.workspace.data())),
        plain_a(in_place.a),
        plain_b(in_place.b) {
    set_batch(0);
  }

  void set_batch(int64_t index) {
    const GemmShape& s = args.shape;
    batch = index;
    a = args.a;
    b = args.b;
    a.data += batch_offset(s, index, a.batch_stride, a.inner_stride);
    b.data += batch_offset(s, index, b.batch_stride, b.inner_stride);
    c = args.c.data + batch_offset(s, index, args.c.batch_stride, args.c.inner_stride);
  }

  float* shared_a() const { return workspace; }
  float* shared_b() const { return shared_a() + plan.shared_a; }
  float* own_a(int64_t slot) const { return shared_b() + plan.shared_b + slot * (plan.own_a + plan.own_b); }
  float* own_b(int64_t slot) const { return own_a(slot) + plan.own_a; }
  float* partial() const { return shared_b() + plan.shared_b + plan.threads * (plan.own_a + plan.own_b); }

  int64_t k_begin(int64_t block) const { return std::min(block * plan.kc, args.shape.k); }
  int64_t k_size(int64_t block) const { return k_begin(block + 1) - k_begin(block); }

  int64_t epilogue_row() const {
    return batch * (args.epilogue.batch_rows < 0 ? args.shape.m : args.epilogue.batch_rows);
  }
  int64_t epilogue_col() const { return batch * args.epilogue.batch_cols; }

  float* row(int64_t r) const {
    const Output<float>& out = args.c;
    if (out.grid_w == 0) return c + r * out.ld;
    const int64_t j = r % out.grid_w, i = r / out.grid_w % out.grid_h, n = r / out.grid_w / out.grid_h;
    return c + n * out.image_stride + i * out.row_stride + j * out.ld;
  }

  bool simple_epilogue(int64_t i0, int64_t j0, RowEpilogue& e) const {
    const Epilogue<float>& given = args.epilogue;
    e.bias_col = given.bias_col ? given.bias_col + epilogue_col() + j0 : nullptr;
    e.bias_row = given.bias_row ? given.bias_row + epilogue_row() + i0 : nullptr;
    e.residual = given.residual;
    e.c_origin = args.c.data;
    e.relu = given.relu;
    return e.bias_col || e.bias_row || e.residual || e.relu;
  }

  void post(int64_t i0, int64_t mb, int64_t j0, int64_t nb) const {
    const Epilogue<float>& e = args.epilogue;
    if (!e.post) return;
    for (int64_t i = i0; i < i0 + mb; ++i) e.post(e.context, row(i) + j0, epilogue_row() + i, epilogue_col() + j0, nb);
  }

  // How the kernel finds the operands of a k block.
  Block block_of(int64_t k_block) const {
    Block block;
    block.kc = k_size(k_block);
    if (plain_a) {
      block.a_far = args.shape.batch * args.shape.m * args.shape.k > kNearFloats;
      block.a_row = a.kind == Kind::k_strided ? 1 : a.ld;
      block.a_k = a.kind == Kind::k_strided ? a.ld : 1;
    } else {
      block.a_runs = lists_runs(a, kernels.geometry, k_begin(k_block), block.kc);
    }
    if (plain_b) block.b_k = b.ld;
    return block;
  }

  // C[i0.., j0..] of one k block; the last block also finishes the elements. A null operand is read where it lies.
  void multiply(int64_t i0, int64_t mb, int64_t j0, int64_t nb, int64_t k_block, const float* packed_a,
                const float* packed_b) const {
    const bool last = k_block + 1 == plan.k_blocks;
    const int64_t p0 = k_begin(k_block);
    const int64_t mr = kernels.geometry.mr;
    const int64_t step_m = std::min(plan.mc, kMaxBlockRows / mr * mr);
    const Cut columns =
        Cut::last_longer(nb, last && args.epilogue.post ? round_up(kPostColumns, kernels.geometry.nr()) : nb);
    Block block = block_of(k_block);
    block.ldc = args.c.ld;
    block.add = k_block > 0;
    float* rows[kMaxBlockRows];
    for (int64_t i = 0; i < mb; i += step_m) {
      block.mb = std::min(step_m, mb - i);
      block.a = packed_a ? packed_a + i * block.kc : a.data + (i0 + i) * block.a_row + p0 * block.a_k;
      for (int64_t part = 0; part < columns.count(); ++part) {
        const int64_t j = columns.begin(part);
        block.nb = columns.size(part);
        block.b = packed_b ? packed_b + j * block.kc : b.data + p0 * block.b_k + j0 + j;
        if (args.c.grid_w > 0) {
          for (int64_t r = 0; r < block.mb; ++r) rows[r] = row(i0 + i + r) + j0 + j;
          block.c_rows = rows;
        } else {
          block.c = c + (i0 + i) * args.c.ld + j0 + j;
        }
        RowEpilogue epilogue;
        block.epilogue = last && simple_epilogue(i0 + i, j0 + j, epilogue) ? &epilogue : nullptr;
        kernels.multiply(block);
        if (last) post(i0 + i, block.mb, j0 + j, block.nb);
      }
    }
  }

  // Packs unless the operand is read where it lies; the result is for multiply().
  const float* pack_a(int64_t i0, int64_t mb, int64_t k_block, float* dst) const {
    if (plain_a) return nullptr;
    const int64_t p0 = k_begin(k_block), pn = k_size(k_block);
    if (lists_runs(a, kernels.geometry, p0, pn))
      list_runs(a, kernels.geometry.mr, i0, mb, p0, pn, dst);
    else
      kernels.pack_a(a, i0, mb, p0, pn, dst);
    return dst;
  }
  const float* pack_b(int64_t j0, int64_t nb, int64_t k_block, float* dst) const {
    if (plain_b) return nullptr;
    kernels.pack_b(b, j0, nb, k_begin(k_block), k_size(k_block), dst);
    return dst;
  }
};

void run_batches(ThreadPool& pool, const Product& product) {
  const GemmPlan& plan = product.plan;
  const GemmShape& s = product.args.shape;
  const int64_t rows = plan.rows.count(), cols = plan.cols.count();
  pool.run_slots(plan.threads, s.batch * rows * cols, [&](int64_t task, int64_t slot) {
    Product mine = product;
    mine.set_batch(task / (rows * cols));
    const int64_t ti = task / cols % rows, tj = task % cols;
    const int64_t i0 = plan.rows.begin(ti), mb = plan.rows.size(ti), j0 = plan.cols.begin(tj), nb = plan.cols.size(tj);
    for (int64_t kb = 0; kb < plan.k_blocks; ++kb) {
      const float* packed_a = mine.pack_a(i0, mb, kb, mine.own_a(slot));
      mine.multiply(i0, mb, j0, nb, kb, packed_a, mine.pack_b(j0, nb, kb, mine.own_b(slot)));
    }
  });
}

void run_k_split(ThreadPool& pool, const Product& product) {
  const GemmPlan& plan = product.plan;
  const GemmKernels& kernels = product.kernels;
  const GemmShape& s = product.args.shape;
  const int64_t size = s.m * s.n;
  for (int64_t first = 0; first < plan.k_blocks; first += plan.ks_blocks) {
    const int64_t blocks = std::min(plan.ks_blocks, plan.k_blocks - first);
    pool.run_slots(plan.threads, blocks, [&](int64_t task, int64_t slot) {
      const int64_t kb = first + task;
      const float* packed_a = product.pack_a(0, s.m, kb, product.own_a(slot));
      const float* packed_b = product.pack_b(0, s.n, kb, product.own_b(slot));
      Block block = product.block_of(kb);
      block.nb = s.n;
      block.b = packed_b ? packed_b : product.b.data + product.k_begin(kb) * block.b_k;
      block.ldc = s.n;
      for (int64_t i = 0; i < s.m; i += plan.mc) {
        block.mb = std::min(plan.mc, s.m - i);
        block.a =
            packed_a ? packed_a + i * block.kc : product.a.data + i * block.a_row + product.k_begin(kb) * block.a_k;
        block.c = product.partial() + task * size + i * s.n;
        kernels.multiply(block);
      }
    });
    const bool last = first + blocks == plan.k_blocks;
    const int64_t rows = std::max<int64_t>(1, (16 << 10) / std::max<int64_t>(s.n * blocks, 1));
    pool.run_slots(plan.threads, ceil_div(s.m, rows), [&](int64_t task, int64_t) {
      const int64_t i0 = task * rows, i1 = std::min(s.m, i0 + rows);
      RowEpilogue epilogue;
      const bool finish = last && product.simple_epilogue(i0, 0, epilogue);
      for (int64_t i = i0; i < i1; ++i) {
        kernels.combine_row(product.partial() + i * s.n, size, blocks, s.n, first > 0, product.row(i));
        if (finish) kernels.finish_row(epilogue, product.row(i), i - i0, 0, s.n);
      }
      if (last) product.post(i0, i1 - i0, 0, s.n);
    });
  }
}

// One part of C (ms x ns) over `blocks` k blocks from `first`: pack what is shared, then compute the tiles.
void run_part(ThreadPool& pool, const Product& product, int64_t i_part, int64_t j_part, int64_t first, int64_t blocks) {
  const GemmPlan& plan = product.plan;
  const GemmKernels& kernels = product.kernels;
  const GemmShape& s = product.args.shape;
  const int64_t mr = kernels.geometry.mr, nr = kernels.geometry.nr(), lanes = kernels.geometry.lanes;
  const int64_t ms = std::min(plan.ms, s.m - i_part), ns = std::min(plan.ns, s.n - j_part);
  // Packed rows of all earlier k blocks lie before those of a k block: all but the last block are kc long.
  const int64_t a_stride = round_up(ms, mr) * plan.kc, b_stride = round_up(ns, lanes) * plan.kc;
  const Cut a_cut = Cut::last_longer(ms, round_up(kPackRows, mr)),
            b_cut = Cut::last_longer(ns, round_up(kPackRows, nr));
  const int64_t a_units = plan.share_a && !product.plain_a ? a_cut.count() : 0;
  const int64_t b_units = plan.share_b && !product.plain_b ? b_cut.count() : 0;
  pool.run_slots(plan.threads, (a_units + b_units) * blocks, [&](int64_t task, int64_t) {
    const int64_t block = task / (a_units + b_units), unit = task % (a_units + b_units), kb = first + block;
    if (unit < a_units) {
      const int64_t r0 = a_cut.begin(unit);
      product.pack_a(i_part + r0, a_cut.size(unit), kb,
                     product.shared_a() + block * a_stride + r0 * product.k_size(kb));
    } else {
      const int64_t r0 = b_cut.begin(unit - a_units);
      product.pack_b(j_part + r0, b_cut.size(unit - a_units), kb,
                     product.shared_b() + block * b_stride + r0 * product.k_size(kb));
    }
  });

  const Cut rows = !plan.share_a ? plan.rows : plan.share_b ? Cut::even(ms, 2 * mr) : Cut::whole(ms);
  const Cut cols = !plan.share_b ? plan.cols : plan.share_a ? Cut::last_longer(ns, nr) : Cut::whole(ns);
  pool.run_slots(plan.threads, rows.count() * cols.count(), [&](int64_t task, int64_t slot) {
    const int64_t ti = task / cols.count(), tj = task % cols.count();
    const int64_t i0 = rows.begin(ti), mb = rows.size(ti), j0 = cols.begin(tj), nb = cols.size(tj);
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t kb = first + block, kc = product.k_size(kb);
      const float* packed_a = plan.share_a
                                  ? (product.plain_a ? nullptr : product.shared_a() + block * a_stride + i0 * kc)
                                  : product.pack_a(i_part + i0, mb, kb, product.own_a(slot));
      const float* packed_b = plan.share_b
                                  ? (product.plain_b ? nullptr : product.shared_b() + block * b_stride + j0 * kc)
                                  : product.pack_b(j_part + j0, nb, kb, product.own_b(slot));
      product.multiply(i_part + i0, mb, j_part + j0, nb, kb, packed_a, packed_b);
    }
  });
}

void gemm_f32(ThreadPool& pool, const GemmArgs<float>& args) {
  const GemmShape& s = args.shape;
  const GemmKernels kernels = gemm_kernels();
  const InPlace in_place{.a = read_a_in_place(args.a, s, kernels.geometry),
                         .b = read_b_in_place(args.b, s, kernels.geometry)};
  const GemmPlan plan = plan_gemm(s, pool.threads(), kernels.geometry, in_place);
  LATHE_CHECK(plan.floats() * static_cast<int64_t>(sizeof(float)) <= static_cast<int64_t>(args.workspace.size()),
              "gemm {}x{}x{}: workspace of {} bytes is too small", s.m, s.n, s.k, args.workspace.size());
  LATHE_CHECK(reinterpret_cast<uintptr_t>(args.workspace.data()) % 64 == 0, "gemm: workspace not aligned to 64");
  Product product(args, plan, in_place, kernels);
  if (plan.mode == GemmPlan::Mode::batches) {
    run_batches(pool, product);
    return;
  }
  for (int64_t batch = 0; batch < s.batch; ++batch) {
    product.set_batch(batch);
    if (plan.mode == GemmPlan::Mode::k_split) {
      run_k_split(pool, product);
      continue;
    }
    for (int64_t j = 0; j < s.n; j += plan.ns)
      for (int64_t i = 0; i < s.m; i += plan.ms)
        for (int64_t first = 0; first < plan.k_blocks; first += plan.ks_blocks)
          run_part(pool, product, i, j, first, std::min(plan.ks_blocks, plan.k_blocks - first));
  }
}

}  // namespace

template <class T>
void gemm(ThreadPool& pool, const GemmArgs<T>& args) {
  const GemmShape& s = args.shape;
  if (s.m <= 0 || s.n <= 0 || s.batch <= 0) return;
  if constexpr (std::is_same_v<T, float>)
    gemm_f32(pool, args);
  else
    gemm_f64(pool, args);
}

template void gemm<float>(ThreadPool&, const GemmArgs<float>&);
template void gemm<double>(ThreadPool&, const GemmArgs<double>&);

}  // namespace lathe::cpu
