#include "bench/bench_op_peers.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <string_view>

#include "backend/cpu/isa.h"
#include "base/error.h"

namespace lathe {
namespace {

// Open for the life of the process, unless closed by hand: a library's threads may outlive every use.
class Library {
 public:
  Library(const std::string& path, const char* fallback)
      : handle_(dlopen(path.empty() ? fallback : path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (!handle_) error_ = dlerror();
  }
  void close() {
    if (handle_) dlclose(handle_);
    handle_ = nullptr;
  }
  // Also finds what the library itself is linked with.
  template <class F>
  void find(F*& function, const char* name) {
    if (!handle_) return;
    function = reinterpret_cast<F*>(dlsym(handle_, name));
    if (!function && error_.empty()) error_ = std::string("it has no function ") + name;
  }
  const std::string& error() const { return error_; }

 private:
  void* handle_;
  std::string error_;
};

constexpr const char* kGetOpenblas = "`apt-get install libopenblas0-openmp`, or name the file in LATHE_OPENBLAS";
constexpr const char* kGetOnednn = "`bench/peers` fetches it; name the file libdnnl.so.3 in LATHE_ONEDNN";

// OpenBLAS: cblas.h.
constexpr int kRowMajor = 101, kNoTrans = 111, kTrans = 112;
struct OpenblasApi {
  void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float* a, int lda,
                const float* b, int ldb, float beta, float* c, int ldc) = nullptr;
  void (*set_num_threads)(int) = nullptr;
  char* (*get_config)() = nullptr;
  char* (*get_corename)() = nullptr;
};

std::string find_openblas(Library& lib, OpenblasApi& api) {
  lib.find(api.sgemm, "cblas_sgemm");
  lib.find(api.set_num_threads, "openblas_set_num_threads");
  lib.find(api.get_config, "openblas_get_config");
  lib.find(api.get_corename, "openblas_get_corename");
  return lib.error();
}

// OpenBLAS takes the oldest kernels, called Prescott, on a processor younger than itself. That would be no peer: the
// kernels of the machine's instruction set to ask for instead, or null.
const char* better_core(const char* core) {
  if (std::string_view(core) != "Prescott" || std::getenv("OPENBLAS_CORETYPE")) return nullptr;
  for (const std::string_view isa : cpu::available_isas()) {
    if (isa == "avx512") return "SkylakeX";
    if (isa == "avx2") return "Haswell";
  }
  return nullptr;
}

class OpenblasGemm final : public GemmPeer {
 public:
  OpenblasGemm(const OpenblasApi& api, int threads) : api_(api), threads_(threads) {}

  std::string prepare(const GemmProblem& p) override {
    p_ = p;
    api_.set_num_threads(threads_);
    return "";
  }
  // There is no batched call in cblas: one call for each matrix.
  void run() override {
    const auto m = static_cast<int>(p_.m), n = static_cast<int>(p_.n), k = static_cast<int>(p_.k);
    for (int64_t i = 0; i < p_.batch; ++i)
      api_.sgemm(kRowMajor, p_.trans_a ? kTrans : kNoTrans, p_.trans_b ? kTrans : kNoTrans, m, n, k, 1,
                 p_.a + i * p_.m * p_.k, p_.trans_a ? m : k, p_.b + i * p_.k * p_.n, p_.trans_b ? k : n, 0,
                 p_.c + i * p_.m * p_.n, n);
  }

 private:
  OpenblasApi api_;
  int threads_;
  GemmProblem p_;
};

// oneDNN 3: dnnl.h. Its objects are opaque pointers; statuses are 0 for success.
struct DnnlVersion {
  int major, minor, patch;
  const char* hash;
  unsigned cpu_runtime, gpu_runtime;
};
struct DnnlArg {
  int arg;
  void* memory;
};
constexpr int kDnnlMaxDims = 12, kDnnlF32 = 3, kDnnlCpu = 1;
constexpr unsigned kDnnlStreamDefault = 1;
constexpr int kDnnlSource = 1, kDnnlDestination = 17, kDnnlWeights = 33;
using DnnlDims = std::array<int64_t, kDnnlMaxDims>;

struct OnednnApi {
  const DnnlVersion* (*version)() = nullptr;
  int (*engine_create)(void** engine, int kind, size_t index) = nullptr;
  int (*stream_create)(void** stream, void* engine, unsigned flags) = nullptr;
  int (*stream_wait)(void* stream) = nullptr;
  int (*desc_create)(void** desc, int ndims, const int64_t* dims, int type, const int64_t* strides) = nullptr;
  int (*desc_destroy)(void*) = nullptr;
  int (*memory_create)(void** memory, const void* desc, void* engine, void* data) = nullptr;
  int (*memory_destroy)(void*) = nullptr;
  int (*matmul_desc_create)(void** desc, void* engine, const void* src, const void* weights, const void* bias,
                            const void* dst, const void* attr) = nullptr;
  int (*primitive_desc_destroy)(void*) = nullptr;
  int (*primitive_create)(void** primitive, const void* desc) = nullptr;
  int (*primitive_destroy)(void*) = nullptr;
  int (*execute)(const void* primitive, void* stream, int count, const DnnlArg* args) = nullptr;
  void (*omp_set_num_threads)(int) = nullptr;
};

class OnednnGemm final : public GemmPeer {
 public:
  OnednnGemm(const OnednnApi& api, void* engine, void* stream, int threads)
      : api_(api), engine_(engine), stream_(stream), threads_(threads) {}
  ~OnednnGemm() override { release(); }
  OnednnGemm(const OnednnGemm&) = delete;
  OnednnGemm& operator=(const OnednnGemm&) = delete;

  // Operands stay where they lie: plain strides, since in training the weights are new in every step and a packed form
  // would have to be recreated.
  std::string prepare(const GemmProblem& p) override {
    release();
    api_.omp_set_num_threads(threads_);
    const bool ok =
        matrix(0, p.batch, p.m, p.k, p.trans_a, const_cast<float*>(p.a)) &&
        matrix(1, p.batch, p.k, p.n, p.trans_b, const_cast<float*>(p.b)) && matrix(2, p.batch, p.m, p.n, false, p.c) &&
        api_.matmul_desc_create(&primitive_desc_, engine_, descs_[0], descs_[1], nullptr, descs_[2], nullptr) == 0 &&
        api_.primitive_create(&primitive_, primitive_desc_) == 0;
    return ok ? "" : "oneDNN has no matmul for this shape";
  }
  void run() override {
    const DnnlArg args[] = {
        {kDnnlSource, memories_[0]}, {kDnnlWeights, memories_[1]}, {kDnnlDestination, memories_[2]}};
    if (api_.execute(primitive_, stream_, 3, args) != 0 || api_.stream_wait(stream_) != 0)
      throw DeviceError("oneDNN: matmul failed");
  }

 private:
  bool matrix(size_t i, int64_t batch, int64_t rows, int64_t cols, bool transposed, float* data) {
    const int ndims = batch > 1 ? 3 : 2;
    const int64_t row_stride = transposed ? 1 : cols, col_stride = transposed ? rows : 1;
    const DnnlDims dims = batch > 1 ? DnnlDims{batch, rows, cols} : DnnlDims{rows, cols};
    const DnnlDims strides =
        batch > 1 ? DnnlDims{rows * cols, row_stride, col_stride} : DnnlDims{row_stride, col_stride};
    return api_.desc_create(&descs_[i], ndims, dims.data(), kDnnlF32, strides.data()) == 0 &&
           api_.memory_create(&memories_[i], descs_[i], engine_, data) == 0;
  }
  void release() {
    const auto drop = [](void*& object, int (*destroy)(void*)) {
      if (object) destroy(object);
      object = nullptr;
    };
    drop(primitive_, api_.primitive_destroy);
    drop(primitive_desc_, api_.primitive_desc_destroy);
    for (void*& m : memories_) drop(m, api_.memory_destroy);
    for (void*& d : descs_) drop(d, api_.desc_destroy);
  }

  OnednnApi api_;
  void *engine_, *stream_;  // of the library, for the life of the process
  int threads_;
  std::array<void*, 3> descs_{}, memories_{};
  void *primitive_desc_ = nullptr, *primitive_ = nullptr;
};

}  // namespace

PeerLibrary open_openblas(const std::string& path, int threads) {
  PeerLibrary out{.name = "OpenBLAS", .version = "", .missing = "", .gemm = nullptr};
  Library lib(path, "libopenblas.so.0");
  OpenblasApi api;
  std::string error = find_openblas(lib, api), note;
  if (const char* core = error.empty() ? better_core(api.get_corename()) : nullptr) {
    note = " (set by OPENBLAS_CORETYPE: this OpenBLAS does not know the processor)";
    lib.close();
    setenv("OPENBLAS_CORETYPE", core, 1);
    lib = Library(path, "libopenblas.so.0");
    error = find_openblas(lib, api);
  }
  if (!error.empty()) {
    out.missing = fmt::format("{}; {}", error, kGetOpenblas);
    return out;
  }
  out.version = api.get_config() + note;
  out.gemm = std::make_unique<OpenblasGemm>(api, threads);
  return out;
}

PeerLibrary open_onednn(const std::string& path, int threads) {
  PeerLibrary out{.name = "oneDNN", .version = "", .missing = "", .gemm = nullptr};
  Library lib(path, "libdnnl.so.3");
  OnednnApi api;
  lib.find(api.version, "dnnl_version");
  lib.find(api.engine_create, "dnnl_engine_create");
  lib.find(api.stream_create, "dnnl_stream_create");
  lib.find(api.stream_wait, "dnnl_stream_wait");
  lib.find(api.desc_create, "dnnl_memory_desc_create_with_strides");
  lib.find(api.desc_destroy, "dnnl_memory_desc_destroy");
  lib.find(api.memory_create, "dnnl_memory_create");
  lib.find(api.memory_destroy, "dnnl_memory_destroy");
  lib.find(api.matmul_desc_create, "dnnl_matmul_primitive_desc_create");
  lib.find(api.primitive_desc_destroy, "dnnl_primitive_desc_destroy");
  lib.find(api.primitive_create, "dnnl_primitive_create");
  lib.find(api.primitive_destroy, "dnnl_primitive_destroy");
  lib.find(api.execute, "dnnl_primitive_execute");
  lib.find(api.omp_set_num_threads, "omp_set_num_threads");
  if (!lib.error().empty()) {
    out.missing = fmt::format("{}; {}", lib.error(), kGetOnednn);
    return out;
  }
  const DnnlVersion& v = *api.version();
  if (v.major != 3) {
    out.missing = fmt::format("found version {}.{}.{}, 3.x is needed; {}", v.major, v.minor, v.patch, kGetOnednn);
    return out;
  }
  out.version = fmt::format("{}.{}.{}", v.major, v.minor, v.patch);
  void *engine = nullptr, *stream = nullptr;
  api.omp_set_num_threads(threads);
  if (api.engine_create(&engine, kDnnlCpu, 0) != 0 || api.stream_create(&stream, engine, kDnnlStreamDefault) != 0) {
    out.missing = "it cannot make an engine for the cpu";
    return out;
  }
  out.gemm = std::make_unique<OnednnGemm>(api, engine, stream, threads);
  return out;
}

}  // namespace lathe
