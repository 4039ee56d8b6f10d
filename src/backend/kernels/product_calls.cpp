#include "backend/kernels/product_calls.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/kernels/loop_calls.h"
#include "backend/kernels/render_scalar.h"
#include "base/checked.h"
#include "base/error.h"

namespace lathe {
namespace {

constexpr int64_t kEnoughGroups = 16;  // narrow: pieces of work for the device's threads
constexpr int64_t kSplitTile = 64;     // tiles of this size are counted to see whether k must be split
constexpr int64_t kSplitUnits = 32;    // tiles at which it need not be
constexpr int64_t kSplitDepth = 1024;  // smallest piece of k
constexpr int64_t kMostSplits = 32;
constexpr int64_t kMostRows = int64_t{1} << 30;  // the text counts in int

// A text with its parameters: numbers are appended in the order of the kernel's parameters.
class ProductText {
 public:
  ProductText(const Product& p, const ProductTiles& t) : p_(p), t_(t) {}

  KernelCall render(bool to_workspace, int64_t splits) {
    const bool narrow = t_.style == LaunchStyle::narrow;
    const std::string type(device_type(p_.dtype));
    std::string kind = fmt::format("{}{}{}{}", p_.a_image ? "_a_image" : "", p_.b_image ? "_b_image" : "",
                                   p_.b_taps ? "_b_taps" : "", p_.c_grid ? "_c_grid" : "");
    define("REAL", type);
    if (p_.stored) {
      LATHE_CHECK(!narrow && !p_.epilogue, "a product of {}", to_string(*p_.stored));
      const auto macro = [&](const char* name, auto convert) {
        define(fmt::format("{}(x)", name), convert(*p_.stored, p_.dtype, "(x)"));
      };
      define("STORED_IN", std::string(device_type(*p_.stored)));
      macro("VALUE", device_load);
      kind += fmt::format("_of_{}", to_string(*p_.stored));
      if (!to_workspace) {
        define("STORED_OUT", std::string(device_type(*p_.stored)));
        macro("ROUNDED", device_store);
        kind += "_rounded";
      }
    }
    if (p_.a_image) define("A_IMAGE", "");
    if (p_.b_image) define("B_IMAGE", "");
    if (p_.b_taps) define("B_TAPS", "");
    if (p_.c_grid) define("C_GRID", "");
    int64_t rows_per = t_.tile_rows;
    std::string tile;
    if (narrow) {
      const int lanes = std::clamp<int>(t_.vector_bytes / static_cast<int>(size_of(p_.dtype)), 2, 16);
      define("NARROW", "");
      define("VECTOR", fmt::format("{}{}", type, lanes));
      define("QUAD", type + "4");
      define("LOAD", fmt::format("vload{}", lanes));
      define("STORE", fmt::format("vstore{}", lanes));
      define("LANES", fmt::format("{}", lanes));
      define("NR", fmt::format("{}", 2 * lanes));
      define("MR", fmt::format("{}", t_.micro_rows));
      // The panel may take 32 KB, less what rows of an image need.
      const int64_t bytes = int64_t{32768} / size_of(p_.dtype) / (2 * lanes + (p_.a_image ? t_.micro_rows : 0));
      const int64_t depth = std::min<int64_t>(t_.depth, bytes / 16 * 16);
      define("KC", fmt::format("{}", depth));
      std::string each;
      for (int r = 0; r < t_.micro_rows; ++r) each += fmt::format("F({}) ", r);
      define("TILE_ROWS(F)", each);
      tile = fmt::format("_{}x{}x{}", t_.micro_rows, 2 * lanes, depth);
      const int64_t panels = ceil_div(p_.n, 2 * lanes) * p_.batch * splits;
      const int64_t pieces = std::max(ceil_div(p_.m, t_.rows_per), ceil_div(kEnoughGroups, panels));
      rows_per = round_up(ceil_div(p_.m, pieces), t_.micro_rows);
      call_.groups = {ceil_div(p_.n, 2 * lanes), ceil_div(p_.m, rows_per), p_.batch * splits};
    } else {
      define("TM", fmt::format("{}", t_.tile_rows));
      define("TN", fmt::format("{}", t_.tile_cols));
      define("PM", fmt::format("{}", t_.item_rows));
      define("PN", fmt::format("{}", t_.item_cols));
      define("DEPTH", fmt::format("{}", t_.wide_depth));
      tile = fmt::format("_{}x{}x{}_{}x{}", t_.tile_rows, t_.tile_cols, t_.wide_depth, t_.item_rows, t_.item_cols);
      call_.groups = {ceil_div(p_.m, t_.tile_rows), ceil_div(p_.n, t_.tile_cols), p_.batch * splits};
      call_.group_size = t_.group_size();
    }
    call_.args = {to_workspace ? workspace_arg(p_.dtype) : p_.c, p_.a, p_.b};
    numbers({p_.m, p_.n, p_.k, p_.a_strides.batch, p_.a_strides.row, p_.a_strides.col, p_.b_strides.batch,
             p_.b_strides.row, p_.b_strides.col});
    if (to_workspace)
      numbers({p_.m * p_.n, p_.n, p_.batch * p_.m * p_.n});
    else
      numbers({p_.c_batch, p_.c_row, 0});
    numbers({splits, ceil_div(std::max<int64_t>(p_.k, 1), splits), rows_per});
    if (p_.a_image) view(*p_.a_image);
    if (p_.b_image) view(*p_.b_image);
    if (p_.b_taps) numbers({p_.b_taps->taps_x, p_.b_taps->inner, p_.b_taps->y, p_.b_taps->x});
    if (p_.c_grid) numbers({p_.c_grid->image, p_.c_grid->line, p_.c_grid->h, p_.c_grid->w});
    if (p_.epilogue) kind += epilogue(*p_.epilogue);

    const std::string suffix = fmt::format("_{}{}{}", to_string(p_.dtype), kind, tile);
    define("NAME(x)", "x##" + suffix);
    call_.name = "product" + suffix;
    call_.source = defines_ + kernel_text::product;
    for (const std::string& name : undefine_) call_.source += fmt::format("#undef {}\n", name);
    return std::move(call_);
  }

 private:
  void define(const std::string& name, const std::string& value) {
    defines_ += fmt::format("#define {} {}\n", name, value);
    undefine_.push_back(name.substr(0, name.find('(')));
  }
  void numbers(std::initializer_list<int64_t> values) {
    for (const int64_t v : values) call_.args.push_back(integer_arg(v));
  }
  void view(const PatchView& v) {
    numbers({v.h, v.w, v.pitch, v.channels, v.grid_h, v.grid_w, v.taps_x, v.base_y, v.base_x, v.step_y, v.step_x,
             v.delta_y, v.delta_x});
  }

  // Returns what distinguishes this epilogue's text from others.
  std::string epilogue(const ProductEpilogue& e) {
    std::string params, body = "{ const long e_row = batch * e_rows + (R), e_col = batch * e_cols + (J); ";
    for (size_t i = 0; i < e.reads.size(); ++i) {
      params += fmt::format(", GLOBAL const {}* e{}, const long e{}_at, const long e{}_row",
                            device_type(e.reads[i].dtype), i, i, i);
      call_.args.push_back(in_arg(e.reads[i].input, e.reads[i].dtype));
      numbers({e.reads[i].row});
    }
    for (size_t i = 0; i < e.stores.size(); ++i) {
      params += fmt::format(", GLOBAL {}* z{}, const long z{}_at", device_type(e.stores[i].dtype), i, i);
      call_.args.push_back(out_arg(e.stores[i].output, e.stores[i].dtype));
    }
    params += ", const long e_rows, const long e_cols, const long e_width";
    numbers({e.batch_rows, e.batch_cols, e.cols});
    std::string lines = render_instrs(e.instrs, "q", "", [&](int32_t a) -> std::string {
      if (a == kProductArg) return "(V)";
      const auto& read = e.reads[static_cast<size_t>(a)];
      LATHE_CHECK(read.col == 0 || read.col == 1, "{}", read.col);
      return device_load(read.dtype, compute_type(read.dtype),
                         fmt::format("e{}[e{}_at{}{}]", a, a, read.row == 0 ? "" : fmt::format(" + e_row * e{}_row", a),
                                     read.col == 0 ? "" : " + e_col"));
    });
    std::ranges::replace(lines, '\n', ' ');
    body += lines;
    for (size_t i = 0; i < e.stores.size(); ++i)
      body += fmt::format(
          "z{}[z{}_at + e_row * e_width + e_col] = {}; ", i, i,
          device_store(e.stores[i].dtype, compute_type(e.stores[i].dtype), fmt::format("q{}", e.stores[i].instr)));
    define("EPILOGUE_PARAMS", params);
    undefine_.pop_back();  // the text does
    define("EPILOGUE(R, J, V)", body + "}");
    return fmt::format("_{:016x}", text_hash(params + body));
  }

  const Product& p_;
  const ProductTiles& t_;
  std::string defines_;
  std::vector<std::string> undefine_;
  KernelCall call_;
};

// Adds up the splits.
LoopNest sum_of_splits(const Product& p, int64_t splits) {
  const int64_t count = p.batch * p.m * p.n;
  LoopNest n;
  n.kept = {count};
  n.reduced = {splits};
  n.reads = {{p.dtype, kWorkspaceBuffer, 0, {1}, {count}}};
  n.map = {{.op = ScalarOp::arg, .a = 0, .dtype = p.dtype, .from = p.dtype}};
  n.reduce = LoopReduce::sum;
  n.reduce_instr = 0;
  n.reduce_dtype = p.dtype;
  n.tail = {{.op = ScalarOp::arg, .a = kReducedArg, .dtype = p.dtype, .from = p.dtype}};
  n.tail_stores = {{0, p.c.index, p.stored.value_or(p.dtype)}};
  return n;
}

}  // namespace

std::string check_tiles(const ProductTiles& t, int64_t largest_group, int64_t local_bytes) {
  if (t.attention_rows != 16 && t.attention_rows != 32 && t.attention_rows != 64)
    return "attention_rows must be 16, 32 or 64";
  if (t.style == LaunchStyle::narrow) {
    const bool good = t.micro_rows >= 1 && t.micro_rows <= 16 && t.depth >= 16 && t.depth % 16 == 0 && t.rows_per >= 1;
    return good ? "" : "micro_rows must be 1 to 16, depth a multiple of 16, rows_per at least 1";
  }
  const bool positive = t.tile_rows > 0 && t.tile_cols > 0 && t.item_rows > 0 && t.item_cols > 0 && t.wide_depth > 0;
  if (!positive || t.tile_rows % t.item_rows != 0 || t.tile_cols % t.item_cols != 0) return "tiles must divide";
  if (t.loop_items != 0 && (t.loop_items < 32 || (t.loop_items & (t.loop_items - 1)) != 0))
    return "loop_items must be a power of two, 32 or more";
  for (const int items : {t.loop_items, attention_items(t.attention_rows)})
    if (items > largest_group) return fmt::format("a group of {} work-items, the device runs {}", items, largest_group);
  const int64_t group = t.group_size();
  if (group > largest_group) return fmt::format("a group of {} work-items, the device runs {}", group, largest_group);
  if (group % t.wide_depth != 0 || group % t.tile_cols != 0 || t.tile_rows * t.wide_depth % group != 0 ||
      t.tile_cols * t.wide_depth % group != 0)
    return "the loads of a group do not divide evenly";
  const int64_t bytes = (t.tile_rows + t.tile_cols + 8) * t.wide_depth * size_of(DType::f64);
  if (bytes > local_bytes) return fmt::format("{} bytes of local memory, the device has {}", bytes, local_bytes);
  return "";
}

int64_t product_splits(const Product& p) {
  const int64_t units = ceil_div(p.m, kSplitTile) * ceil_div(p.n, kSplitTile) * p.batch;
  if (p.epilogue || p.c_grid || units == 0 || units >= kSplitUnits) return 1;
  return std::clamp<int64_t>(std::min(ceil_div(kSplitUnits, units), p.k / kSplitDepth), 1, kMostSplits);
}

int64_t product_workspace(const Product& p) {
  const int64_t splits = product_splits(p);
  return splits == 1 ? 0 : splits * p.batch * p.m * p.n * size_of(p.dtype);
}

std::vector<KernelCall> product_calls(const Product& p, const ProductTiles& tiles) {
  if (p.batch * p.m * p.n == 0) return {};
  for (const int64_t size : {p.m, p.n, p.k}) LATHE_CHECK(size < kMostRows, "a product of {} x {} x {}", p.m, p.n, p.k);
  const int64_t splits = product_splits(p);
  if (splits == 1) return {ProductText(p, tiles).render(false, 1)};
  std::vector<KernelCall> calls{ProductText(p, tiles).render(true, splits)};
  for (KernelCall& call : loop_calls(sum_of_splits(p, splits), tiles.style)) calls.push_back(std::move(call));
  return calls;
}

}  // namespace lathe
