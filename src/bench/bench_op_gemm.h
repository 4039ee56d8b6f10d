// The cpu backend's matrix multiply against OpenBLAS and oneDNN, interleaved in one run: Lathe, OpenBLAS, oneDNN,
// Lathe,
// ... So a change of the machine's load or clock meets all of them, and the ratios hold.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/bench_op.h"

namespace lathe {

struct GemmShapeCase {                     // A product to measure.
  std::string name;                        // of the layer or workload
  int64_t m = 0, n = 0, k = 0, batch = 1;  // batch times [m, k] by [k, n]
  bool trans_a = false, trans_b = false;   // stored transposed
};

// All shapes of the workloads; those whose name contains `text`; or a shape given as "MxNxK", "MxNxKxBATCH", with ":tn"
// after it to say which operand is stored transposed (n: not). UserError where nothing fits.
std::vector<GemmShapeCase> gemm_bench_shapes(const std::vector<std::string>& texts);

struct GemmBenchOptions {        // How bench_gemm measures.
  int threads = 0;               // of every contender; 0: all
  int rounds = 9;                // turns of each contender
  double block_seconds = 0.01;   // calls of one contender in one round last about this long, at least one call
  double pause_seconds = 0.025;  // before a contender's turn: the threads of the one before it stop spinning
  std::string openblas, onednn;  // files; empty: by the system's search
  bool peak = true;              // measure the peak; without it percentages are 0
};

struct GemmContender {        // A library that multiplies.
  std::string name, version;  // what, which
  std::string missing;        // why it takes no part
};

struct GemmBenchRow {                 // One product, measured.
  GemmShapeCase shape;                // what was measured
  double flops = 0;                   // of one call
  std::vector<Timing> seconds;        // by contender, per call; median 0: took no part
  std::vector<std::string> declined;  // by contender
  double ratio = 0;                   // speed of Lathe over that of the faster peer, median over rounds; 0: no peer
};

struct GemmBench {                        // All products, measured.
  std::vector<GemmContender> contenders;  // Lathe first
  std::vector<GemmBenchRow> rows;         // in the order of the shapes
  int threads = 0;                        // of every contender
  std::string isa;                        // instruction set that Lathe used
  double load = 0;        // programs that wanted to run in the minute before (load average); above 0, results suffer
  double peak_flops = 0;  // measured before and after, the larger; 0: not measured
  double geometric_mean = 0;  // of the ratios; 0: no peer
};

// `on_start` sees all but the rows, with the peak measured before; `on_row` each row as it is ready.
GemmBench bench_gemm(const std::vector<GemmShapeCase>&, const GemmBenchOptions&,
                     const std::function<void(const GemmBench&)>& on_start = {},
                     const std::function<void(const GemmBench&, const GemmBenchRow&)>& on_row = {});

}  // namespace lathe
