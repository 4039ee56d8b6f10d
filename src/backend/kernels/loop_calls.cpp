#include "backend/kernels/loop_calls.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "backend/kernels/render_scalar.h"
#include "base/checked.h"
#include "base/error.h"

namespace lathe {
namespace {

constexpr int64_t kLoopBlock = 4096;     // elements of one narrow group of a map
constexpr int kLanes = 16;               // narrow, inner axis reduced: independent partial sums
constexpr int kColumns = 64;             // narrow, inner axis kept: results that are summed side by side
constexpr int64_t kSplitFrom = 1 << 18;  // elements from which a reduction may be split
constexpr int64_t kEnoughUnits = 64;     // independent pieces of work at which it need not be

int64_t product(const Ints& v, size_t count) {
  int64_t p = 1;
  for (size_t i = 0; i < count; ++i) p *= v[i];
  return p;
}
int64_t product(const Ints& v) { return product(v, v.size()); }
int64_t inner(const Ints& v) { return v.empty() ? 1 : v.back(); }
int64_t outer(const Ints& v) { return v.empty() ? 1 : product(v, v.size() - 1); }

// How the reduced axes of a nest are cut; depends on the shapes alone.
struct Split {
  int64_t rows = 1, cols = 1;          // the reduced axes as rows x cols; cols is 1 when the inner axis is kept
  int64_t rows_per = 1, cols_per = 1;  // of one piece
  int64_t row_blocks() const { return ceil_div(rows, std::max<int64_t>(rows_per, 1)); }
  int64_t col_blocks() const { return ceil_div(cols, std::max<int64_t>(cols_per, 1)); }
  int64_t count() const { return std::max<int64_t>(row_blocks() * col_blocks(), 1); }
};

Split split_of(const LoopNest& n) {
  Split s;
  s.rows = n.inner_reduced ? outer(n.reduced) : product(n.reduced);
  s.cols = n.inner_reduced ? inner(n.reduced) : 1;
  s.rows_per = std::max<int64_t>(s.rows, 1);
  s.cols_per = std::max<int64_t>(s.cols, 1);
  const int64_t points = product(n.kept), all = s.rows * s.cols;
  if (n.reduce == LoopReduce::none || points == 0 || points * all < kSplitFrom) return s;
  const int64_t units = n.inner_reduced ? points : ceil_div(points, kColumns);
  const int64_t most = n.inner_reduced ? all / kLoopBlock : all / kColumns;
  const int64_t pieces = std::min(ceil_div(kEnoughUnits, units), most);
  if (pieces <= 1) return s;
  if (s.rows >= pieces)
    s.rows_per = ceil_div(s.rows, pieces);
  else
    s.cols_per = round_up(ceil_div(s.cols, pieces), kLanes);
  return s;
}

class LoopText {
 public:
  LoopText(const LoopNest& nest, LaunchStyle style, int items, bool to_workspace)
      : n_(nest),
        style_(style),
        group_(style == LaunchStyle::narrow || items == 0 ? group_items(style) : items),
        split_(split_of(nest)),
        to_workspace_(to_workspace),
        acc_(accumulator_type(nest.reduce_dtype)) {}

  KernelCall render() {
    index_ = fits_int() ? "int" : "long";
    for (size_t i = 0; i < n_.writes.size(); ++i) buffer("y", i, n_.writes[i], true);
    for (size_t i = 0; i < n_.reads.size(); ++i) buffer("x", i, n_.reads[i], false);
    if (n_.reduce != LoopReduce::none && !to_workspace_) {
      for (size_t i = 0; i < n_.tail_stores.size(); ++i)
        buffer("z", i, {n_.tail_stores[i].dtype, n_.tail_stores[i].output, 0, {}, {}}, true);
      for (size_t i = 0; i < n_.tail_reads.size(); ++i) buffer("t", i, n_.tail_reads[i], false);
    }
    if (to_workspace_) buffer("w", 0, {acc_, kWorkspaceBuffer, 0, {}, {}}, true);

    if (n_.reduce == LoopReduce::none)
      style_ == LaunchStyle::narrow ? map_narrow() : map_wide();
    else if (n_.inner_reduced)
      style_ == LaunchStyle::narrow ? rows_narrow() : rows_wide();
    else
      style_ == LaunchStyle::narrow ? columns_narrow() : columns_wide();

    std::string text = fmt::format("({}) {{\n{}{}}}\n", params_, prologue_, body_);
    const std::string name = fmt::format("loop_{:016x}", text_hash(text));
    call_.group_size = group_;
    call_.source = fmt::format("KERNEL GROUP_SIZE({}) void {}{}\n", call_.group_size, name, text);
    call_.name = name;
    return std::move(call_);
  }

 private:
  // --- parameters -----------------------------------------------------------------------------------------------
  void parameter(const std::string& text) { params_ += (params_.empty() ? "" : ", ") + text; }

  void buffer(const char* prefix, size_t i, const LoopAccess& a, bool written) {
    const std::string name = fmt::format("{}{}", prefix, i);
    parameter(fmt::format("GLOBAL {}{}* {}", written ? "" : "const ", device_type(a.dtype), name));
    parameter(fmt::format("const long {}_at", name));
    prologue_ += fmt::format("  {} += {}_at;\n", name, name);
    if (a.buffer == kWorkspaceBuffer)
      call_.args.push_back(workspace_arg(a.dtype, a.offset));
    else if (written)
      call_.args.push_back(out_arg(a.buffer, a.dtype, a.offset));
    else
      call_.args.push_back(in_arg(a.buffer, a.dtype, a.offset));
  }

  // An integer parameter in the index type, made at its first mention; returns its name.
  std::string number(const std::string& name, int64_t value) {
    if (std::ranges::find(numbers_, name) != numbers_.end()) return name;
    numbers_.push_back(name);
    parameter(fmt::format("const long {}_", name));
    prologue_ += fmt::format("  const {} {} = ({}){}_;\n", index_, name, index_, name);
    call_.args.push_back(integer_arg(value));
    return name;
  }

  bool fits_int() const {
    constexpr int64_t kLimit = (int64_t{1} << 31) - (int64_t{1} << 22);  // room for rounding up to blocks
    if (product(n_.kept) * std::max<int64_t>(product(n_.reduced), 1) >= kLimit) return false;
    for (const auto* list : {&n_.reads, &n_.writes, &n_.tail_reads})
      for (const LoopAccess& a : *list) {
        int64_t span = 0;
        for (size_t d = 0; d < a.kept.size(); ++d) span += (n_.kept[d] - 1) * a.kept[d];
        for (size_t d = 0; d < a.reduced.size(); ++d) span += (n_.reduced[d] - 1) * a.reduced[d];
        if (span >= kLimit) return false;
      }
    return true;
  }

  // --- index arithmetic -------------------------------------------------------------------------------------------
  // Splits variable `flat` over the first `count` sizes into <flat>0, <flat>1, ...
  std::string decompose(const char* flat, const Ints& sizes, size_t count, const char* indent) {
    if (count == 0) return "";
    if (count == 1) return fmt::format("{}const {} {}0 = {};\n", indent, index_, flat, flat);
    std::string text = fmt::format("{}{} {}_rest = {};\n", indent, index_, flat, flat);
    for (size_t d = count; d-- > 1;) {
      const std::string size = number(fmt::format("{}_size{}", flat, d), sizes[d]);
      text += fmt::format("{}const {} {}{} = {}_rest % {};\n{}{}_rest /= {};\n", indent, index_, flat, d, flat, size,
                          indent, flat, size);
    }
    return text + fmt::format("{}const {} {}0 = {}_rest;\n", indent, index_, flat, flat);
  }

  // Declares <access><suffix> = start + the part of the access's index that comes from <flat>0, <flat>1, ...
  std::string bases(const char* flat, size_t count, const char* suffix, const char* start_suffix, bool reduced,
                    const char* indent) {
    std::string text;
    each_access([&](const std::string& name, const LoopAccess& a) {
      std::string sum = start_suffix ? name + start_suffix : "0";
      const Ints& strides = reduced ? a.reduced : a.kept;
      for (size_t d = 0; d < count; ++d)
        if (d < strides.size() && strides[d] != 0)
          sum += fmt::format(" + {}{} * {}", flat, d, number(fmt::format("{}_{}{}", name, flat, d), strides[d]));
      text += fmt::format("{}const {} {}{} = {};\n", indent, index_, name, suffix, sum);
    });
    return text;
  }

  void each_access(const std::function<void(const std::string&, const LoopAccess&)>& f) const {
    for (size_t i = 0; i < n_.writes.size(); ++i) f(fmt::format("y{}", i), n_.writes[i]);
    for (size_t i = 0; i < n_.reads.size(); ++i) f(fmt::format("x{}", i), n_.reads[i]);
  }

  std::string lane_term(const std::string& name, int64_t stride) {
    if (stride == 0) return "";
    if (stride == 1) return " + i";
    return fmt::format(" + i * {}", number(name + "_i", stride));
  }
  int64_t lane_stride(const LoopAccess& a) const {
    const Ints& s = n_.inner_reduced ? a.reduced : a.kept;
    return s.empty() ? 0 : s.back();
  }

  // Of the instruction that reads argument `a`.
  static DType read_type(const std::vector<ScalarInstr>& instrs, int32_t a) {
    for (const ScalarInstr& i : instrs)
      if (i.op == ScalarOp::arg && i.a == a) return i.dtype;
    return DType::f32;
  }

  // --- pieces of the body -----------------------------------------------------------------------------------------
  // The map at lane `i`; accesses are based at <name><suffix>.
  std::string map_at(const char* suffix, const std::string& indent) {
    std::string text = render_instrs(n_.map, "m", indent, [&](int32_t a) {
      const std::string name = fmt::format("x{}", a);
      const LoopAccess& read = n_.reads[static_cast<size_t>(a)];
      return device_load(read.dtype, read_type(n_.map, a),
                         fmt::format("{}[{}{}{}]", name, name, suffix, lane_term(name, lane_stride(read))));
    });
    for (size_t k = 0; k < n_.writes.size(); ++k) {
      const std::string name = fmt::format("y{}", k);
      const int32_t from = n_.map_stores[k];
      text += fmt::format(
          "{}{}[{}{}{}] = {};\n", indent, name, name, suffix, lane_term(name, lane_stride(n_.writes[k])),
          device_store(n_.writes[k].dtype, n_.map[static_cast<size_t>(from)].dtype, fmt::format("m{}", from)));
    }
    return text;
  }

  std::string combine(const std::string& a, const std::string& b) const {
    return n_.reduce == LoopReduce::sum ? fmt::format("{} + {}", a, b) : fmt::format("MAX_NAN({}, {})", a, b);
  }
  std::string mapped() const { return fmt::format("({})m{}", device_type(acc_), n_.reduce_instr); }
  std::string identity() const {
    return device_literal(acc_, n_.reduce == LoopReduce::sum ? 0.0
                                : is_float(acc_)             ? -HUGE_VAL
                                                             : -9223372036854775808.0);
  }

  // What happens to a reduced value `acc` of kept point `point`. `kept_flat`: the variable whose parts index tail
  // reads.
  std::string finish(const std::string& acc, const std::string& point, const char* kept_flat, size_t kept_count,
                     bool lanes, const std::string& indent) {
    if (to_workspace_)
      return fmt::format("{}w0[(long)({}) * {} + piece] = {};\n", indent, point, number("pieces", split_.count()), acc);
    std::string text = fmt::format("{}const {} total = {};\n", indent, device_type(n_.reduce_dtype),
                                   device_convert(acc_, n_.reduce_dtype, acc));
    text += render_instrs(n_.tail, "v", indent, [&](int32_t a) -> std::string {
      if (a == kReducedArg) return "total";
      const LoopAccess& read = n_.tail_reads[static_cast<size_t>(a)];
      const std::string name = fmt::format("t{}", a);
      std::string sum = "0";
      for (size_t d = 0; d < kept_count; ++d)
        if (read.kept[d] != 0)
          sum += fmt::format(" + {}{} * {}", kept_flat, d,
                             number(fmt::format("{}_{}{}", name, kept_flat, d), read.kept[d]));
      if (lanes) sum += lane_term(name, read.kept.empty() ? 0 : read.kept.back());
      return device_load(read.dtype, read_type(n_.tail, a), fmt::format("{}[{}]", name, sum));
    });
    for (size_t s = 0; s < n_.tail_stores.size(); ++s) {
      const LoopStore& store = n_.tail_stores[s];
      text += fmt::format(
          "{}z{}[{}] = {};\n", indent, s, point,
          device_store(store.dtype, n_.tail[static_cast<size_t>(store.instr)].dtype, fmt::format("v{}", store.instr)));
    }
    return text;
  }

  // Declares begin, end, first, last: the piece of the reduced rows x cols that this group sums.
  std::string piece(const char* indent) {
    const std::string rows = number("rows", split_.rows), rows_per = number("rows_per", split_.rows_per);
    std::string text = fmt::format("{}const {} piece = ({})GROUP_ID(2);\n", indent, index_, index_);
    std::string row_block = "piece";
    if (n_.inner_reduced) {
      const std::string cols = number("cols", split_.cols), cols_per = number("cols_per", split_.cols_per);
      const std::string blocks = number("col_blocks", std::max<int64_t>(split_.col_blocks(), 1));
      row_block = fmt::format("(piece / {})", blocks);
      text += fmt::format("{0}const {1} begin = piece % {2} * {3}, end = MIN_OF(begin + {3}, {4});\n", indent, index_,
                          blocks, cols_per, cols);
    }
    return text + fmt::format("{0}const {1} first = {2} * {3}, last = MIN_OF(first + {3}, {4});\n", indent, index_,
                              row_block, rows_per, rows);
  }

  // --- the six forms ----------------------------------------------------------------------------------------------
  void map_narrow() {
    const int64_t rows = outer(n_.kept), cols = inner(n_.kept);
    const int64_t cols_per = std::min(cols, kLoopBlock),
                  rows_per = std::max<int64_t>(kLoopBlock / std::max<int64_t>(cols_per, 1), 1);
    call_.groups = {ceil_div(cols, std::max<int64_t>(cols_per, 1)), ceil_div(rows, rows_per), 1};
    const size_t count = n_.kept.empty() ? 0 : n_.kept.size() - 1;
    number("cols", cols);
    number("rows", rows);
    number("cols_per", cols_per);
    number("rows_per", rows_per);
    body_ +=
        fmt::format("  const {0} begin = ({0})GROUP_ID(0) * cols_per, end = MIN_OF(begin + cols_per, cols);\n", index_);
    body_ += fmt::format("  const {0} first = ({0})GROUP_ID(1) * rows_per, last = MIN_OF(first + rows_per, rows);\n",
                         index_);
    body_ += fmt::format("  for ({} k = first; k < last; ++k) {{\n", index_);
    body_ += decompose("k", n_.kept, count, "    ") + bases("k", count, "_k", nullptr, false, "    ");
    body_ += fmt::format("    INDEPENDENT\n    for ({} i = begin; i < end; ++i) {{\n", index_);
    body_ += map_at("_k", "      ") + "    }\n  }\n";
  }

  void map_wide() {
    const int64_t cols = inner(n_.kept), total = product(n_.kept);
    call_.groups = {ceil_div(total, group_), 1, 1};
    const size_t count = n_.kept.empty() ? 0 : n_.kept.size() - 1;
    number("total", total);
    body_ += fmt::format("  const {0} flat = ({0})GROUP_ID(0) * {1} + LOCAL_ID;\n  if (flat >= total) return;\n",
                         index_, group_);
    if (count == 0) {
      body_ += fmt::format("  const {} i = flat;\n", index_);
    } else {
      number("cols", cols);
      body_ += fmt::format("  const {0} k = flat / cols, i = flat % cols;\n", index_);
    }
    body_ += decompose("k", n_.kept, count, "  ") + bases("k", count, "_k", nullptr, false, "  ");
    body_ += map_at("_k", "  ");
  }

  // Inner axis reduced, one work-item per block of results; kLanes partial sums per result, joined by a tree.
  void rows_narrow() {
    const int64_t points = product(n_.kept),
                  per = std::max<int64_t>(kLoopBlock / std::max<int64_t>(split_.rows_per * split_.cols_per, 1), 1);
    call_.groups = {ceil_div(points, per), 1, split_.count()};
    number("points", points);
    number("points_per", per);
    const std::string acc(device_type(acc_));
    const size_t reduced_rows = n_.reduced.size() - 1;
    body_ += piece("  ");
    body_ += fmt::format("  const {0} from = ({0})GROUP_ID(0) * points_per, to = MIN_OF(from + points_per, points);\n",
                         index_);
    body_ += fmt::format("  for ({} k = from; k < to; ++k) {{\n", index_);
    body_ += decompose("k", n_.kept, n_.kept.size(), "    ") + bases("k", n_.kept.size(), "_k", nullptr, false, "    ");
    body_ +=
        fmt::format("    {0} acc[{1}];\n    for (int l = 0; l < {1}; ++l) acc[l] = {2};\n", acc, kLanes, identity());
    body_ += fmt::format("    for ({} r = first; r < last; ++r) {{\n", index_);
    body_ += decompose("r", n_.reduced, reduced_rows, "      ") + bases("r", reduced_rows, "_r", "_k", true, "      ");
    const std::string lane =
        map_at("_r", "          ") + fmt::format("          acc[l] = {};\n", combine("acc[l]", mapped()));
    body_ += fmt::format("      {} at = begin;\n      for (; at + {} <= end; at += {}) {{\n", index_, kLanes, kLanes);
    body_ += fmt::format(
        "        INDEPENDENT\n        for (int l = 0; l < {}; ++l) {{\n          const {} i = at + l;\n{}        }}\n  "
        "    }}\n",
        kLanes, index_, lane);
    body_ +=
        fmt::format("      for (int l = 0; at + l < end; ++l) {{\n          const {} i = at + l;\n{}      }}\n    }}\n",
                    index_, lane);
    body_ += fmt::format("    for (int w = {}; w > 0; w /= 2)\n      for (int l = 0; l < w; ++l) acc[l] = {};\n",
                         kLanes / 2, combine("acc[l]", "acc[l + w]"));
    body_ += finish("acc[0]", "k", "k", n_.kept.size(), false, "    ") + "  }\n";
  }

  // Inner axis reduced, one group per result; a tree in local memory.
  void rows_wide() {
    call_.groups = {product(n_.kept), 1, split_.count()};
    const std::string acc(device_type(acc_));
    const size_t reduced_rows = n_.reduced.size() - 1;
    body_ += fmt::format("  LOCAL {} tree[{}];\n", acc, group_);
    body_ += piece("  ");
    body_ += fmt::format("  const {0} k = ({0})GROUP_ID(0);\n", index_);
    body_ += decompose("k", n_.kept, n_.kept.size(), "  ") + bases("k", n_.kept.size(), "_k", nullptr, false, "  ");
    body_ += fmt::format("  {} acc = {};\n  const {} width = end - begin, count = (last - first) * width;\n", acc,
                         identity(), index_);
    body_ += fmt::format("  for ({} f = LOCAL_ID; f < count; f += {}) {{\n", index_, group_);
    if (reduced_rows > 0) body_ += fmt::format("    const {} r = first + f / width;\n", index_);
    body_ += fmt::format("    const {} i = begin + f % width;\n", index_);
    body_ += decompose("r", n_.reduced, reduced_rows, "    ") + bases("r", reduced_rows, "_r", "_k", true, "    ");
    body_ += map_at("_r", "    ") + fmt::format("    acc = {};\n  }}\n", combine("acc", mapped()));
    body_ += "  tree[LOCAL_ID] = acc;\n  BARRIER();\n";
    body_ += fmt::format(
        "  for (int w = {}; w > 0; w /= 2) {{\n    if (LOCAL_ID < w) tree[LOCAL_ID] = {};\n    BARRIER();\n  }}\n",
        group_ / 2, combine("tree[LOCAL_ID]", "tree[LOCAL_ID + w]"));
    body_ += "  if (LOCAL_ID == 0) {\n" + finish("tree[0]", "k", "k", n_.kept.size(), false, "    ") + "  }\n";
  }

  // Inner axis kept: kColumns neighbouring results side by side, summed down the reduced rows.
  void columns_narrow() {
    const int64_t cols = inner(n_.kept), rows = outer(n_.kept);
    call_.groups = {ceil_div(cols, kColumns), rows, split_.count()};
    const size_t kept_rows = n_.kept.empty() ? 0 : n_.kept.size() - 1;
    number("kept_cols", cols);
    body_ += piece("  ");
    body_ += fmt::format("  const {0} k = ({0})GROUP_ID(1), start = ({0})GROUP_ID(0) * {1};\n", index_, kColumns);
    body_ += fmt::format("  const int width = (int)MIN_OF(kept_cols - start, {});\n", kColumns);
    body_ += decompose("k", n_.kept, kept_rows, "  ") + bases("k", kept_rows, "_k", nullptr, false, "  ");
    body_ += fmt::format("  {0} acc[{1}];\n  for (int l = 0; l < {1}; ++l) acc[l] = {2};\n", device_type(acc_),
                         kColumns, identity());
    body_ += fmt::format("  for ({} r = first; r < last; ++r) {{\n", index_);
    body_ +=
        decompose("r", n_.reduced, n_.reduced.size(), "    ") + bases("r", n_.reduced.size(), "_r", "_k", true, "    ");
    body_ +=
        fmt::format("    INDEPENDENT\n    for (int l = 0; l < width; ++l) {{\n      const {} i = start + l;\n", index_);
    body_ += map_at("_r", "      ") + fmt::format("      acc[l] = {};\n    }}\n  }}\n", combine("acc[l]", mapped()));
    body_ += fmt::format("  INDEPENDENT\n  for (int l = 0; l < width; ++l) {{\n    const {} i = start + l;\n", index_);
    body_ += finish("acc[l]", "k * kept_cols + i", "k", kept_rows, true, "    ") + "  }\n";
  }

  void columns_wide() {
    const int64_t cols = inner(n_.kept), points = product(n_.kept);
    call_.groups = {ceil_div(points, group_), 1, split_.count()};
    const size_t kept_rows = n_.kept.empty() ? 0 : n_.kept.size() - 1;
    number("kept_cols", cols);
    number("points", points);
    body_ += piece("  ");
    body_ += fmt::format("  const {0} point = ({0})GROUP_ID(0) * {1} + LOCAL_ID;\n  if (point >= points) return;\n",
                         index_, group_);
    if (kept_rows > 0) body_ += fmt::format("  const {} k = point / kept_cols;\n", index_);
    body_ += fmt::format("  const {} i = point % kept_cols;\n", index_);
    body_ += decompose("k", n_.kept, kept_rows, "  ") + bases("k", kept_rows, "_k", nullptr, false, "  ");
    body_ +=
        fmt::format("  {} acc = {};\n  for ({} r = first; r < last; ++r) {{\n", device_type(acc_), identity(), index_);
    body_ +=
        decompose("r", n_.reduced, n_.reduced.size(), "    ") + bases("r", n_.reduced.size(), "_r", "_k", true, "    ");
    body_ += map_at("_r", "    ") + fmt::format("    acc = {};\n  }}\n", combine("acc", mapped()));
    body_ += finish("acc", "point", "k", kept_rows, true, "  ");
  }

  const LoopNest& n_;
  LaunchStyle style_;
  int group_;  // work-items
  Split split_;
  bool to_workspace_;
  DType acc_;
  const char* index_ = "long";
  std::string params_, prologue_, body_;
  std::vector<std::string> numbers_;
  KernelCall call_;
};

// The second kernel of a split reduction: sums the partial results and runs the tail.
LoopNest second_nest(const LoopNest& n, int64_t pieces) {
  const DType acc = accumulator_type(n.reduce_dtype);
  LoopNest s;
  s.kept = n.kept;
  s.reduced = {pieces};
  s.inner_reduced = true;
  s.tail_reads = n.tail_reads;
  for (LoopAccess& a : s.tail_reads) a.reduced = {0};
  s.tail = n.tail;
  s.tail_stores = n.tail_stores;
  s.reduce = n.reduce;
  s.reduce_instr = 0;
  s.reduce_dtype = n.reduce_dtype;
  s.map = {{.op = ScalarOp::arg, .a = 0, .dtype = acc, .from = acc}};
  LoopAccess partial{acc, kWorkspaceBuffer, 0, Ints(n.kept.size()), {1}};
  int64_t stride = pieces;
  for (size_t d = n.kept.size(); d-- > 0; stride *= n.kept[d]) partial.kept[d] = stride;
  s.reads = {partial};
  return s;
}

}  // namespace

std::vector<KernelCall> loop_calls(const LoopNest& n, LaunchStyle style, int items) {
  if (product(n.kept) == 0) return {};
  if (n.reduce == LoopReduce::none) return {LoopText(n, style, items, false).render()};
  const int64_t pieces = split_of(n).count();
  if (pieces == 1) return {LoopText(n, style, items, false).render()};
  const LoopNest second = second_nest(n, pieces);
  LATHE_CHECK(split_of(second).count() == 1, "{} pieces", pieces);
  return {LoopText(n, style, items, true).render(), LoopText(second, style, items, false).render()};
}

int64_t loop_workspace(const LoopNest& n) {
  const int64_t pieces = split_of(n).count();
  return pieces == 1 ? 0 : pieces * product(n.kept) * size_of(accumulator_type(n.reduce_dtype));
}

}  // namespace lathe
