// cuBLASLt: D = epilogue(alpha * op(A) op(B) + beta * C), all from the descriptors.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "sim_entry.h"
#include "sim_numbers.h"
#include "sim_state.h"

namespace lathe::sim {
namespace {

struct Desc {
  int compute = 0, scale = 0, trans_a = 0, trans_b = 0, epilogue = kEpilogueDefault;
  int bias_type = -1;
  const void* bias = nullptr;
  const void* aux = nullptr;
  int64_t aux_ld = 0, aux_stride = 0;
  bool has_aux() const { return (epilogue & 128) != 0; }
  bool writes_aux() const { return has_aux() && (epilogue & kEpilogueGelu) != 0; }
  bool sums() const { return epilogue == kEpilogueDgeluBgrad || sums_operand(); }
  bool sums_operand() const { return epilogue == kEpilogueBgradA || epilogue == kEpilogueBgradB; }
};
struct Layout {
  int type = 0;
  int64_t rows = 0, cols = 0, ld = 0, stride = 0;
  int order = 0, batch = 1;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t reductions = 7;  // all
  uint32_t align[4] = {256, 256, 256, 256};
};
// What the opaque algorithm holds: the problem it was chosen for, and what it needs.
struct Algo {
  uint64_t magic, workspace, align[4], problem;
};
constexpr uint64_t kMagic = 0x5171A160;
static_assert(sizeof(Algo) <= sizeof(LtAlgo));

template <class T, class H>
int create(H* handle, T value) {
  const Lock lock(state().mutex);
  auto made = std::make_unique<T>(value);
  state().handles.insert(made.get());
  *handle = reinterpret_cast<H>(made.release());
  return kLtSuccess;
}
template <class T>
int destroy(void* handle, const char* what) {
  const Lock lock(state().mutex);
  if (!is_live(handle)) return report(kLtInvalidValue, fmt::format("cublasLt: no such {} to destroy", what));
  state().handles.erase(handle);
  const std::unique_ptr<T> owned(static_cast<T*>(handle));
  return kLtSuccess;
}
template <class T>
int set(T& field, const void* value, size_t bytes) {
  if (bytes != sizeof(T))
    return report(kLtInvalidValue, fmt::format("cublasLt: an attribute of {} bytes set with {}", sizeof(T), bytes));
  std::memcpy(&field, value, bytes);
  return kLtSuccess;
}
template <class T>
const T& of(const void* handle) {
  return *static_cast<const T*>(handle);
}

int decline(const std::string& why) { return report(kLtNotSupported, "cublasLt: " + why); }
int invalid(const std::string& why) { return report(kLtInvalidValue, "cublasLt: " + why); }

// Bytes from the first to the last element.
size_t span_of(const Layout& l) {
  const int64_t elements = (l.batch - 1) * l.stride + (l.cols - 1) * l.ld + l.rows;
  return static_cast<size_t>(elements * type_size(l.type));
}

uint64_t problem_hash(const Desc& d, std::initializer_list<const Layout*> layouts) {
  std::string text =
      fmt::format("{} {} {} {} {} {} {}", d.compute, d.scale, d.trans_a, d.trans_b, d.epilogue, d.aux_ld, d.aux_stride);
  for (const Layout* l : layouts)
    text += fmt::format("; {} {} {} {} {} {} {}", l->type, l->rows, l->cols, l->ld, l->stride, l->order, l->batch);
  return std::hash<std::string>()(text);
}

int check(const Desc& d, const Layout& a, const Layout& b, const Layout& c, const Layout& o) {
  for (const Layout* l : {&a, &b, &c, &o}) {
    if (!known_type(l->type)) return decline(fmt::format("data type {}", l->type));
    if (l->order != 0) return decline("only the column order is simulated");
    if (l->rows <= 0 || l->cols <= 0 || l->batch <= 0)
      return invalid(fmt::format("a matrix of {} x {}, {} times", l->rows, l->cols, l->batch));
    if (l->ld < l->rows) return invalid(fmt::format("leading dimension {} of a matrix with {} rows", l->ld, l->rows));
    if (l->batch != o.batch) return invalid(fmt::format("{} and {} matrices in a batch", l->batch, o.batch));
  }
  const int64_t m = d.trans_a ? a.cols : a.rows, k = d.trans_a ? a.rows : a.cols;
  const int64_t kb = d.trans_b ? b.cols : b.rows, n = d.trans_b ? b.rows : b.cols;
  if (k != kb || m != o.rows || n != o.cols || c.rows != m || c.cols != n)
    return invalid(
        fmt::format("op(A) {} x {}, op(B) {} x {}, C {} x {}, D {} x {}", m, k, kb, n, c.rows, c.cols, o.rows, o.cols));
  // The supported combinations of the manual, for the types at hand.
  const bool same = a.type == b.type && c.type == o.type;
  const bool wide = a.type == o.type || ((a.type == kR16F || a.type == kR16BF) && o.type == kR32F);
  const bool ok = (d.compute == kCompute32F && d.scale == kR32F && a.type != kR64F && wide) ||
                  (d.compute == kCompute32FFastTf32 && d.scale == kR32F && a.type == kR32F && o.type == kR32F) ||
                  (d.compute == kCompute16F && d.scale == kR16F && a.type == kR16F && o.type == kR16F) ||
                  (d.compute == kCompute64F && d.scale == kR64F && a.type == kR64F && o.type == kR64F);
  if (d.compute == kCompute32FFastTf32 && capability() < 80) return decline("TF32 before compute capability 8.0");
  if (!same || !ok)
    return decline(fmt::format("compute type {} with scale {} for A {}, B {}, C {}, D {}", d.compute, d.scale, a.type,
                               b.type, c.type, o.type));
  static const std::set<int> kKnown{kEpilogueDefault, kEpilogueRelu,       kEpilogueBias,    kEpilogueReluBias,
                                    kEpilogueGelu,    kEpilogueGeluBias,   kEpilogueGeluAux, kEpilogueGeluAuxBias,
                                    kEpilogueDgelu,   kEpilogueDgeluBgrad, kEpilogueBgradA,  kEpilogueBgradB};
  if (kKnown.count(d.epilogue) == 0) return decline(fmt::format("epilogue {}", d.epilogue));
  if (d.epilogue != kEpilogueDefault && a.type == kR64F) return decline("epilogues in double precision");
  if ((d.epilogue & kEpilogueBias) && d.bias_type >= 0 && d.bias_type != o.type)
    return decline("a bias of another type than D");
  if (d.has_aux() && (d.aux_ld < m || d.aux_ld % 8 != 0 || d.aux_stride % 8 != 0))
    return invalid(
        fmt::format("auxiliary leading dimension {}, batch stride {} for {} rows", d.aux_ld, d.aux_stride, m));
  if (d.sums() && o.batch != 1) return decline("a bias gradient of a batch");
  return kLtSuccess;
}

// result[c][i] = sum over p of left[p][i] * column[c][p], for four columns.
#if defined(__x86_64__)
__attribute__((target_clones("avx2", "default")))
#endif
void four_columns(const double* left, const double* column, double* result, int64_t m, int64_t k) {
  double *r0 = result, *r1 = result + m, *r2 = result + 2 * m, *r3 = result + 3 * m;
  for (int64_t i = 0; i < 4 * m; ++i) result[i] = 0;
  for (int64_t p = 0; p < k; ++p) {
    const double c0 = column[p], c1 = column[k + p], c2 = column[2 * k + p], c3 = column[3 * k + p];
    const double* x = left + p * m;
    for (int64_t i = 0; i < m; ++i) {
      r0[i] += x[i] * c0;
      r1[i] += x[i] * c1;
      r2[i] += x[i] * c2;
      r3[i] += x[i] * c3;
    }
  }
}

double gelu_slope(double x) {
  const double t = std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}
double gelu(double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }

}  // namespace

size_t sim_cublasLtGetVersion() { return static_cast<size_t>(version_of("CUBLASLT", 130000)); }
const char* sim_cublasLtGetStatusString(int status) {
  static thread_local std::string text;
  text = fmt::format("{}: {}",
                     status == kLtNotSupported   ? "CUBLAS_STATUS_NOT_SUPPORTED"
                     : status == kLtInvalidValue ? "CUBLAS_STATUS_INVALID_VALUE"
                                                 : "CUBLAS_STATUS",
                     state().last_report);
  return text.c_str();
}
int sim_cublasLtCreate(LtHandle* handle) {
  trace_call("make", "cublasLtCreate");
  if (!in_context()) return kLtNotInitialized;
  return create(handle, int{0});
}
int sim_cublasLtDestroy(LtHandle handle) { return destroy<int>(handle, "handle"); }

int sim_cublasLtMatmulDescCreate(LtMatmulDesc* desc, int compute_type, int scale_type) {
  trace_call("make", "cublasLtMatmulDescCreate");
  Desc d;
  d.compute = compute_type;
  d.scale = scale_type;
  return create(desc, d);
}
int sim_cublasLtMatmulDescDestroy(LtMatmulDesc desc) { return destroy<Desc>(desc, "matmul descriptor"); }
int sim_cublasLtMatmulDescSetAttribute(LtMatmulDesc desc, int attribute, const void* value, size_t bytes) {
  if (!is_live(desc)) return invalid("no such matmul descriptor");
  auto& d = *reinterpret_cast<Desc*>(desc);
  switch (attribute) {
    case kDescTransA: return set(d.trans_a, value, bytes);
    case kDescTransB: return set(d.trans_b, value, bytes);
    case kDescEpilogue: return set(d.epilogue, value, bytes);
    case kDescBiasPointer: return set(d.bias, value, bytes);
    case kDescBiasType: return set(d.bias_type, value, bytes);
    case kDescAuxPointer: return set(d.aux, value, bytes);
    case kDescAuxLd: return set(d.aux_ld, value, bytes);
    case kDescAuxBatchStride: return set(d.aux_stride, value, bytes);
  }
  return decline(fmt::format("matmul attribute {}", attribute));
}

int sim_cublasLtMatrixLayoutCreate(LtLayout* layout, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  trace_call("make", "cublasLtMatrixLayoutCreate");
  Layout l;
  l.type = type;
  l.rows = static_cast<int64_t>(rows);
  l.cols = static_cast<int64_t>(cols);
  l.ld = ld;
  return create(layout, l);
}
int sim_cublasLtMatrixLayoutDestroy(LtLayout layout) { return destroy<Layout>(layout, "layout"); }
int sim_cublasLtMatrixLayoutSetAttribute(LtLayout layout, int attribute, const void* value, size_t bytes) {
  if (!is_live(layout)) return invalid("no such layout");
  auto& l = *reinterpret_cast<Layout*>(layout);
  switch (attribute) {
    case kLayoutOrder: return set(l.order, value, bytes);
    case kLayoutBatchCount: return set(l.batch, value, bytes);
    case kLayoutBatchStride: return set(l.stride, value, bytes);
  }
  return decline(fmt::format("layout attribute {}", attribute));
}

int sim_cublasLtMatmulPreferenceCreate(LtPreference* preference) { return create(preference, Preference{}); }
int sim_cublasLtMatmulPreferenceDestroy(LtPreference preference) {
  return destroy<Preference>(preference, "preference");
}
int sim_cublasLtMatmulPreferenceSetAttribute(LtPreference preference, int attribute, const void* value, size_t bytes) {
  if (!is_live(preference)) return invalid("no such preference");
  auto& p = *reinterpret_cast<Preference*>(preference);
  switch (attribute) {
    case kPrefMaxWorkspace: return set(p.workspace, value, bytes);
    case kPrefReductionMask: return set(p.reductions, value, bytes);
    case kPrefAlignA: return set(p.align[0], value, bytes);
    case kPrefAlignB: return set(p.align[1], value, bytes);
    case kPrefAlignC: return set(p.align[2], value, bytes);
    case kPrefAlignD: return set(p.align[3], value, bytes);
  }
  return decline(fmt::format("preference attribute {}", attribute));
}

// Four fifths of the peak of a card with two multiprocessors at 1 MHz: an RTX 4090's where that is its name, else those
// of compute capability 8.0. LATHE_CUDA_SIM_NO_TENSOR: its tensor cores are not in use. _SLOW_TENSOR: they reach a
// fifth.
static double rate_of(int type, int compute) {
  const bool small = card_name().find("RTX 4090") != std::string::npos;
  const double f32 = small ? 128 : 64, tf32 = small ? 128 : 512, f16 = small ? 256 : 1024;
  const bool half = type == kR16F || type == kR16BF, tensor = half || compute == kCompute32FFastTf32;
  const double fma = !tensor || has_flag("NO_TENSOR") ? f32 : half ? f16 : tf32;
  return (tensor && has_flag("SLOW_TENSOR") ? 0.2 : 0.8) * 2 * fma * 2 * 1e6;
}

int sim_cublasLtMatmulAlgoGetHeuristic(LtHandle handle, LtMatmulDesc desc, LtLayout a, LtLayout b, LtLayout c,
                                       LtLayout d, LtPreference preference, int wanted, LtHeuristicResult* results,
                                       int* found) {
  const Lock lock(state().mutex);
  for (const void* h : {static_cast<const void*>(handle), static_cast<const void*>(desc), static_cast<const void*>(a),
                        static_cast<const void*>(b), static_cast<const void*>(c), static_cast<const void*>(d),
                        static_cast<const void*>(preference)})
    if (!is_live(h)) return invalid("cublasLtMatmulAlgoGetHeuristic: a descriptor is not live");
  *found = 0;
  const auto& op = of<Desc>(desc);
  if (const int status = check(op, of<Layout>(a), of<Layout>(b), of<Layout>(c), of<Layout>(d)); status != kLtSuccess)
    return status;
  if (wanted < 1) return invalid("no algorithm wanted");
  if (has_flag("NO_ALGORITHM")) {
    *found = 0;
    return kLtNotSupported;
  }
  const auto& p = of<Preference>(preference);
  const int type = of<Layout>(d).type;
  if ((type == kR16F || type == kR16BF) && (p.reductions & (kReductionInplace | kReductionOutputType)))
    return invalid("parts of a sum may be added in 16 bits");
  Algo algo{};
  algo.magic = kMagic;
  // As if it would split the sum in two, where the workspace allows.
  const size_t split = 2 * span_of(of<Layout>(d));
  algo.workspace = split <= p.workspace ? split : 0;
  for (int i = 0; i < 4; ++i) algo.align[i] = p.align[i];
  algo.problem = problem_hash(op, {&of<Layout>(a), &of<Layout>(b), &of<Layout>(c), &of<Layout>(d)});
  std::memset(&results[0], 0, sizeof results[0]);
  std::memcpy(&results[0].algo, &algo, sizeof algo);
  results[0].workspace_size = algo.workspace;
  results[0].state = kLtSuccess;
  results[0].waves_count = 1;
  *found = 1;
  return kLtSuccess;
}

int sim_cublasLtMatmul(LtHandle handle, LtMatmulDesc desc, const void* alpha, const void* a, LtLayout a_layout,
                       const void* b, LtLayout b_layout, const void* beta, const void* c, LtLayout c_layout, void* d,
                       LtLayout d_layout, const LtAlgo* algorithm, void* workspace, size_t workspace_bytes,
                       StreamHandle stream) {
  const Lock lock(state().mutex);
  for (const void* h :
       {static_cast<const void*>(handle), static_cast<const void*>(desc), static_cast<const void*>(a_layout),
        static_cast<const void*>(b_layout), static_cast<const void*>(c_layout), static_cast<const void*>(d_layout)})
    if (!is_live(h)) return invalid("cublasLtMatmul: a descriptor is not live");
  const Desc op = of<Desc>(desc);
  const Layout la = of<Layout>(a_layout), lb = of<Layout>(b_layout), lc = of<Layout>(c_layout),
               ld = of<Layout>(d_layout);
  if (const int status = check(op, la, lb, lc, ld); status != kLtSuccess) return status;
  Algo algo;
  if (!algorithm) return decline("no algorithm given");
  std::memcpy(&algo, algorithm, sizeof algo);
  if (algo.magic != kMagic || algo.problem != problem_hash(op, {&la, &lb, &lc, &ld}))
    return invalid("the algorithm was chosen for another problem");
  if (algo.workspace > workspace_bytes)
    return invalid(fmt::format("a workspace of {} bytes, {} are needed", workspace_bytes, algo.workspace));
  const void* pointers[4] = {a, b, c, d};
  for (int i = 0; i < 4; ++i)
    if (reinterpret_cast<Address>(pointers[i]) % algo.align[i] != 0)
      return invalid(
          fmt::format("matrix {} is not aligned to {} bytes, which the preference promised", "ABCD"[i], algo.align[i]));
  if (((op.epilogue & kEpilogueBias) || op.sums()) && !op.bias) return invalid("a bias epilogue without a bias");
  if (op.has_aux() && !op.aux) return invalid("an epilogue without its auxiliary matrix");
  const double by = load_number(alpha, 0, op.scale), plus = load_number(beta, 0, op.scale);
  ++state().counters.matmuls;

  return submit(stream,
                {fmt::format("cublasLtMatmul {}x{}x{}", ld.rows, ld.cols, op.trans_a ? la.rows : la.cols),
                 [=](std::vector<Access>& touched) {
                   const auto address = [](const void* p) { return reinterpret_cast<Address>(p); };
                   const size_t bias_bytes = static_cast<size_t>(ld.rows * type_size(ld.type));
                   std::vector<Access> all{{address(a), span_of(la), false}, {address(b), span_of(lb), false}};
                   if (plus != 0) all.push_back({address(c), span_of(lc), false});
                   if (op.epilogue & kEpilogueBias) all.push_back({address(op.bias), bias_bytes, false});
                   if (op.sums()) {
                     const int64_t length = op.epilogue == kEpilogueBgradB ? ld.cols : ld.rows;
                     all.push_back({address(op.bias), static_cast<size_t>(length * type_size(ld.type)), true});
                   }
                   if (op.has_aux()) {
                     const int64_t last = (ld.batch - 1) * op.aux_stride + (ld.cols - 1) * op.aux_ld + ld.rows;
                     all.push_back({address(op.aux), static_cast<size_t>(last * type_size(ld.type)), op.writes_aux()});
                   }
                   if (algo.workspace > 0) all.push_back({address(workspace), algo.workspace, true});
                   all.push_back({address(d), span_of(ld), true});
                   for (const Access& x : all)
                     if (const int status = check_range("cublasLtMatmul", x.address, x.bytes); status != kSuccess)
                       return status;
                   if (algo.workspace > 0) std::memset(workspace, 0xFF, algo.workspace);

                   const int64_t m = ld.rows, n = ld.cols, k = op.trans_a ? la.rows : la.cols;
                   std::vector<double> left(static_cast<size_t>(m * k)), columns(static_cast<size_t>(4 * k)),
                       results(static_cast<size_t>(4 * m));
                   std::vector<double> sums(static_cast<size_t>(std::max(m, n)));
                   const bool tf32 = op.compute == kCompute32FFastTf32;
                   const auto number = [&](const void* base, int64_t at, int type) {
                     const double v = load_number(base, at, type);
                     return tf32 ? static_cast<double>(round_bits(static_cast<float>(v), 13)) : v;
                   };
                   for (int64_t s = 0; s < ld.batch; ++s) {
                     for (int64_t p = 0; p < k; ++p)
                       for (int64_t i = 0; i < m; ++i)
                         left[static_cast<size_t>(p * m + i)] =
                             number(a, s * la.stride + (op.trans_a ? i * la.ld + p : p * la.ld + i), la.type);
                     if (op.epilogue == kEpilogueBgradA)
                       for (int64_t i = 0; i < m; ++i)
                         for (int64_t p = 0; p < k; ++p)
                           sums[static_cast<size_t>(i)] += left[static_cast<size_t>(p * m + i)];
                     for (int64_t j = 0; j < n; ++j) {
                       if (j % 4 == 0) {
                         for (int64_t c = 0; c < 4; ++c)
                           for (int64_t p = 0; p < k; ++p) {
                             const int64_t at = std::min(j + c, n - 1);
                             columns[static_cast<size_t>(c * k + p)] =
                                 number(b, s * lb.stride + (op.trans_b ? p * lb.ld + at : at * lb.ld + p), lb.type);
                           }
                         four_columns(left.data(), columns.data(), results.data(), m, k);
                       }
                       const double* result = results.data() + j % 4 * m;
                       if (op.epilogue == kEpilogueBgradB)
                         for (int64_t p = 0; p < k; ++p)
                           sums[static_cast<size_t>(j)] += columns[static_cast<size_t>(j % 4 * k + p)];
                       for (int64_t i = 0; i < m; ++i) {
                         double v = by * result[i];
                         if (plus != 0) v += plus * load_number(c, s * lc.stride + j * lc.ld + i, lc.type);
                         if (op.epilogue & kEpilogueBias) v += load_number(op.bias, i, ld.type);
                         if (op.epilogue & kEpilogueRelu) v = v > 0 || std::isnan(v) ? v : 0;
                         const int64_t aux_at = s * op.aux_stride + j * op.aux_ld + i;
                         if (op.writes_aux()) store_number(const_cast<void*>(op.aux), aux_at, ld.type, v);
                         if (op.epilogue & kEpilogueGelu) v = gelu(v);
                         if (op.has_aux() && !op.writes_aux()) v *= gelu_slope(load_number(op.aux, aux_at, ld.type));
                         if (op.epilogue == kEpilogueDgeluBgrad) sums[static_cast<size_t>(i)] += v;
                         store_number(d, s * ld.stride + j * ld.ld + i, ld.type, v);
                       }
                     }
                   }
                   if (op.sums())
                     for (int64_t i = 0; i < (op.epilogue == kEpilogueBgradB ? n : m); ++i)
                       store_number(const_cast<void*>(op.bias), i, ld.type, sums[static_cast<size_t>(i)]);
                   touched = std::move(all);
                   return static_cast<int>(kSuccess);
                 },
                 2.0 * static_cast<double>(ld.batch * ld.rows * ld.cols * (op.trans_a ? la.rows : la.cols)) /
                     rate_of(la.type, op.compute)}) == kSuccess
             ? kLtSuccess
             : kLtExecutionFailed;
}

}  // namespace lathe::sim
