#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace lathe::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::vector<std::string> ops, shapes;
  std::string device = "cpu";
  int threads = 0, rounds = 9;
  bool json = false;
};

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// Shapes come from the command line: what is wrong with them is wrong usage.
template <class F>
auto from_command_line(F&& f) {
  try {
    return f();
  } catch (const UserError& e) {
    throw UserError(e.what(), Exit::usage);
  }
}

const OpDef& find_op(const std::string& name) {
  const OpDef* op = registry().find(name);
  if (!op)
    throw UserError(fmt::format("bench op: no op is named \"{}\"; `lathe devices --ops` lists them", name),
                    Exit::usage);
  return *op;
}

// "workload" of "workload/layer/pass"; shapes given by numbers have none.
std::string workload_of(const std::string& name) {
  const size_t slash = name.find('/');
  return slash == std::string::npos ? "" : name.substr(0, slash);
}

double geometric_mean(const GemmBench& b, const std::string& workload) {
  double sum = 0, count = 0;
  for (const GemmBenchRow& r : b.rows)
    if (workload_of(r.shape.name) == workload) {
      sum += std::log(r.ratio);
      count += 1;
    }
  return std::exp(sum / count);
}

Json gemm_json(const GemmBench& b) {
  Json contenders = Json::array(), rows = Json::array();
  for (const GemmContender& c : b.contenders)
    contenders.push_back(Json{{"name", c.name}, {"version", c.version}, {"missing", c.missing}});
  for (const GemmBenchRow& r : b.rows) {
    Json rates = Json::object();
    for (size_t i = 0; i < b.contenders.size(); ++i) {
      if (r.seconds[i].median == 0) continue;
      rates[b.contenders[i].name] = Json{{"gflops", r.flops / r.seconds[i].median / 1e9},
                                         {"seconds", r.seconds[i].median},
                                         {"spread", r.seconds[i].spread()}};
    }
    rows.push_back(Json{{"shape", r.shape.name},
                        {"m", r.shape.m},
                        {"n", r.shape.n},
                        {"k", r.shape.k},
                        {"batch", r.shape.batch},
                        {"trans_a", r.shape.trans_a},
                        {"trans_b", r.shape.trans_b},
                        {"rates", rates},
                        {"ratio", r.ratio > 0 ? Json(r.ratio) : Json()},
                        {"percent_of_peak", 100 * r.flops / r.seconds[0].median / b.peak_flops}});
  }
  return Json{{"op", "matmul"},
              {"device", "cpu"},
              {"threads", b.threads},
              {"isa", b.isa},
              {"peak_gflops", b.peak_flops / 1e9},
              {"load_average", b.load},
              {"contenders", contenders},
              {"rows", rows},
              {"geometric_mean_ratio", b.geometric_mean > 0 ? Json(b.geometric_mean) : Json()}};
}

void print_gemm_header(const GemmBench& b, int rounds) {
  fmt::print(
      "matmul, f32, {} threads, instruction set {}, measured peak {:.0f} GFLOP/s; medians of {} interleaved rounds\n",
      b.threads, b.isa, b.peak_flops / 1e9, rounds);
  for (const GemmContender& c : b.contenders)
    fmt::print("  {:<9} {}\n", c.name, c.missing.empty() ? c.version : "MISSING: " + c.missing);
  if (b.load > 0.5 * b.threads)
    fmt::print(
        "  WARNING: load average {:.1f}: other programs are running; rates fall, and libraries whose threads spin lose "
        "most\n",
        b.load);
  fmt::print("GFLOP/s, and the distance of the quartiles in % of the median\n\n{:<26} {:>18} {:>3}", "shape",
             "m x n x k (batch)", "a b");
  for (const GemmContender& c : b.contenders) fmt::print(" {:>14}", c.name);
  fmt::print(" {:>7} {:>7}\n", "ratio", "% peak");
}

void print_gemm_row(const GemmBench& b, const GemmBenchRow& r) {
  const GemmShapeCase& s = r.shape;
  fmt::print("{:<26} {:>18} {} {}", s.name,
             fmt::format("{}x{}x{}{}", s.m, s.n, s.k, s.batch > 1 ? fmt::format(" ({})", s.batch) : ""),
             s.trans_a ? 't' : 'n', s.trans_b ? 't' : 'n');
  for (size_t i = 0; i < b.contenders.size(); ++i)
    fmt::print(" {:>14}",
               r.seconds[i].median > 0
                   ? fmt::format("{:.1f} ({:2.0f} %)", r.flops / r.seconds[i].median / 1e9, 100 * r.seconds[i].spread())
               : b.contenders[i].missing.empty() ? "declined"
                                                 : "missing");
  fmt::print(" {:>7} {:>6.0f}%\n", r.ratio > 0 ? fmt::format("{:.2f}", r.ratio) : "-",
             100 * r.flops / r.seconds[0].median / b.peak_flops);
  std::fflush(stdout);
}

void print_gemm_summary(const GemmBench& b) {
  fmt::print("\n");
  if (b.geometric_mean == 0) {
    fmt::print("geometric mean of the ratio to the better peer: unknown, no peer took part in every shape\n");
    return;
  }
  std::vector<std::string> seen;
  for (const GemmBenchRow& r : b.rows) {
    const std::string w = workload_of(r.shape.name);
    if (w.empty() || std::ranges::find(seen, w) != seen.end()) continue;
    seen.push_back(w);
    fmt::print("  {:<12} {:.3f}\n", w, geometric_mean(b, w));
  }
  std::string only;
  for (const GemmContender& c : b.contenders)
    if (!c.missing.empty()) only += fmt::format(" ({} is missing)", c.name);
  fmt::print("geometric mean of the ratio to the better peer: {:.3f} over {} shapes{}\n", b.geometric_mean,
             b.rows.size(), only);
}

// Compared with the peers, where they can run: on the cpu.
Json run_gemm(const Options& o) {
  GemmBenchOptions g;
  g.threads = o.threads;
  g.rounds = o.rounds;
  g.openblas = environment("LATHE_OPENBLAS");
  g.onednn = environment("LATHE_ONEDNN");
  const auto shapes = from_command_line([&] { return gemm_bench_shapes(o.shapes); });
  if (o.json) return gemm_json(bench_gemm(shapes, g));
  const GemmBench b = bench_gemm(
      shapes, g, [&](const GemmBench& start) { print_gemm_header(start, o.rounds); }, print_gemm_row);
  print_gemm_summary(b);
  return {};
}

Json op_json(const OpBenchRow& r) {
  Json shapes = Json::array();
  for (const TensorType& t : r.in) shapes.push_back(to_string(t));
  Json j{{"case", r.label}, {"inputs", shapes}};
  if (!r.declined.empty()) j["declined"] = r.declined;
  if (r.kernels.empty()) return j;
  j["kernels"] = r.kernels;
  j["seconds"] = r.seconds.median;
  j["spread"] = r.seconds.spread();
  j["gflops"] = r.cost.flops / r.seconds.median / 1e9;
  j["gbs"] = (r.cost.bytes_read + r.cost.bytes_written) / r.seconds.median / 1e9;
  j["percent_of_peak_flops"] = r.flops_percent;
  j["percent_of_peak_bandwidth"] = r.bytes_percent;
  return j;
}

std::string kernel_list(const std::vector<std::string>& kernels) {
  std::string out;
  for (size_t i = 0; i < kernels.size();) {
    size_t end = i;
    while (end < kernels.size() && kernels[end] == kernels[i]) ++end;
    out += (out.empty() ? "" : " + ") + (end - i > 1 ? fmt::format("{} x {}", end - i, kernels[i]) : kernels[i]);
    i = end;
  }
  return out;
}

void print_op_row(const std::string& op, const OpBenchRow& r) {
  std::vector<std::string> shapes;
  for (const TensorType& t : r.in) shapes.push_back(to_string(t));
  fmt::print("{:<18} {:<18} ", op, r.label);
  if (!r.declined.empty())
    fmt::print("does not run here: {}\n", r.declined);
  else if (r.kernels.empty())
    fmt::print("no work: the result is the input's memory, or a constant\n");
  else
    fmt::print("{:>10.4g} {:>3.0f} % {:>8.1f} {:>6.0f}% {:>8.2f} {:>6.0f}%  {}  {}\n", r.seconds.median * 1e3,
               100 * r.seconds.spread(), r.cost.flops / r.seconds.median / 1e9, r.flops_percent,
               (r.cost.bytes_read + r.cost.bytes_written) / r.seconds.median / 1e9, r.bytes_percent,
               kernel_list(r.kernels), fmt::join(shapes, " "));
  std::fflush(stdout);
}

struct Work {
  const OpDef* op;
  std::vector<Sample> cases;
};

std::vector<Work> find_work(const Options& o) {
  std::vector<Work> work;
  for (const std::string& name : o.ops) {
    if (name == "all") {
      for (const OpDef* op : registry().all())
        if (op->runs_alone() && !op->has(kView)) work.push_back({op, {}});
    } else {
      work.push_back({&find_op(name), {}});
    }
  }
  return work;
}

void find_cases(Work& w, const Options& o) {
  if (o.shapes.empty()) w.cases = bench_cases(*w.op);
  for (const std::string& text : o.shapes)
    w.cases.push_back(from_command_line([&] { return bench_case_of(*w.op, text); }));
  if (w.cases.empty())
    throw UserError(fmt::format("bench op {}: it runs only as part of other ops", w.op->name()), Exit::usage);
}

Json run_op(const Work& w, const Options& o, const Backend& backend, const DeviceOptions& device, const Peak& peak) {
  Json rows = Json::array();
  for (const Sample& s : w.cases) {
    const OpBenchRow row = bench_case(*w.op, s, backend, device, peak, o.rounds);
    if (o.json)
      rows.push_back(op_json(row));
    else
      print_op_row(std::string(w.op->name()), row);
  }
  return Json{{"op", w.op->name()},
              {"device", o.device},
              {"peak_gflops", peak.flops_per_second / 1e9},
              {"peak_gbs", peak.bytes_per_second / 1e9},
              {"rows", rows}};
}

void print_op_header(const Options& o, const Peak& peak) {
  fmt::print("{}: measured peaks {:.0f} GFLOP/s, {:.1f} GB/s; rates by the flops and bytes of the kernels that ran\n\n",
             o.device, peak.flops_per_second / 1e9, peak.bytes_per_second / 1e9);
  fmt::print("{:<18} {:<18} {:>10} {:>5} {:>8} {:>7} {:>8} {:>7}  {}\n", "op", "case", "ms", "+-", "GFLOP/s", "% peak",
             "GB/s", "% peak", "kernels, inputs");
}

void run(const Options& o) {
  const DeviceName name = parse_device_name(o.device);
  const Backend& backend = find_backend(name.backend);
  std::vector<Work> work = find_work(o);
  const auto first_other = std::stable_partition(
      work.begin(), work.end(), [&](const Work& w) { return w.op->name() == "matmul" && name.backend == "cpu"; });
  for (auto w = first_other; w != work.end(); ++w) find_cases(*w, o);  // errors come before the first measurement
  Json results = Json::array();
  for (auto w = work.begin(); w != first_other; ++w) results.push_back(run_gemm(o));
  if (first_other != work.end()) {
    const DeviceOptions device{name.index, o.threads};
    const Peak peak = measure_peak(backend, device);
    if (!o.json) print_op_header(o, peak);
    for (auto w = first_other; w != work.end(); ++w) results.push_back(run_op(*w, o, backend, device, peak));
  }
  if (o.json) fmt::print("{}\n", (results.size() == 1 ? results[0] : results).dump(2));
}

}  // namespace

void add_bench_op(CLI::App& bench, int&) {
  auto o = std::make_shared<Options>();
  CLI::App* cmd =
      bench.add_subcommand("op", "Rates of one op; `matmul` on the cpu is compared with OpenBLAS and oneDNN");
  cmd->add_option("NAME", o->ops, "Op, or several, or `all`; `lathe devices --ops` lists them")->required();
  add_device_option(*cmd, o->device, "default: cpu");
  cmd->add_option("--threads", o->threads, "cpu threads, for the peers as well; 0: all")->check(whole_number(0, 1024));
  cmd->add_option("--rounds", o->rounds, "Measurements of each case, at least")
      ->check(whole_number(1, 1000000))
      ->capture_default_str();
  cmd->add_option("--shapes", o->shapes,
                  "matmul on the cpu: a part of the names (gpt-mini), or MxNxK[xBATCH][:nt]; other ops: a shape for "
                  "each input, 64x1024,1024,1024; "
                  "may be repeated")
      ->take_all()
      ->expected(1);
  cmd->add_flag("--json", o->json, "Print the result as JSON");
  cmd->footer(
      "Examples: lathe bench op matmul\n"
      "          LATHE_ONEDNN=/opt/onednn/lib/libdnnl.so.3 lathe bench op matmul --threads 1 --shapes mlp --shapes "
      "512x512x512:nt\n"
      "          lathe bench op softmax --shapes 8192x512");
  cmd->callback([o] { run(*o); });
}

}  // namespace lathe::cli
