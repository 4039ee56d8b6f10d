// Collectives between ranks, over the group that the device was opened with (comm/collectives.h). On a lane of their
// own, beside what is computed.
#include "ops/collective.h"

#include <cstring>

#include "backend/cpu/families.h"
#include "backend/cpu/host_kernel.h"
#include "comm/collectives.h"
#include "ir/placement.h"
#include "ops/tree_sum.h"

namespace lathe::cpu {
namespace {

std::span<std::byte> bytes_of(std::byte* data, const TensorType& type) {
  return {data, static_cast<size_t>(type.bytes())};
}

// Where a rank is while it runs this node, for people.
int32_t label_of(comm::Collectives& ranks, const Site& site) {
  const std::string what = site.in.size() == 1 ? to_string(site.in[0]) : fmt::format("({} tensors)", site.in.size());
  return ranks.label(
      fmt::format("{} of {}{}{}", site.node.op->name(), site.node.origin, site.node.origin.empty() ? "" : " ", what));
}

std::unique_ptr<Kernel> bind_all_reduce(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  comm::Collectives& ranks = host_device(device).collectives(site.node.get<AllReduceParams>().ranks);
  std::vector<comm::InOut> list;
  for (size_t i = 0; i < site.out.size(); ++i)
    if (site.out[i].bytes() > 0) list.push_back({host.in[i], host.out[i], site.out[i].bytes()});
  return host_kernel([&ranks, list = std::move(list), type = site.out[0].dtype, label = label_of(ranks, site)] {
    ranks.at(label).all_reduce(list, type);
  });
}

// A tensor of which ranks have parts along an axis, in two orders: as it is, and `packed`, the parts one after another.
// They are the same where nothing stands before the axis.
class Parts {
 public:
  Parts(const TensorType& whole, const ShardParams& p) : ranks_(p.ranks), units_(p.units) {
    const auto axis = static_cast<int>(p.axis);
    for (int i = 0; i < axis; ++i) outer_ *= whole.shape[i];
    size_ = whole.shape[axis];
    for (int i = axis + 1; i < whole.shape.ndim(); ++i) inner_ *= whole.shape[i];
    inner_ *= size_of(whole.dtype);
  }

  bool is_packed() const { return outer_ == 1; }                       // as it is
  int64_t unit() const { return outer_ * (size_ / units_) * inner_; }  // bytes of a unit in all of the tensor
  int64_t bytes() const { return outer_ * size_ * inner_; }            // of the whole
  Part bytes_of(int64_t rank) const {                                  // of a rank, packed
    const Part own = part_of(units_, ranks_, rank);
    return {own.first * unit(), own.last * unit()};
  }

  // f(place in the whole, place in the part, bytes) for each run of bytes of a rank.
  template <class F>
  void each_run(int64_t rank, F&& f) const {
    const Part own = part_on(size_, units_, ranks_, rank);
    if (own.size() == 0) return;
    for (int64_t i = 0; i < outer_; ++i)
      f((i * size_ + own.first) * inner_, i * own.size() * inner_, own.size() * inner_);
  }
  void pack(const std::byte* whole, std::byte* packed) const {
    for (int64_t r = 0; r < ranks_; ++r)
      each_run(r, [&, to = packed + bytes_of(r).first](int64_t from, int64_t at, int64_t count) {
        std::memcpy(to + at, whole + from, static_cast<size_t>(count));
      });
  }
  void unpack(const std::byte* packed, std::byte* whole) const {
    for (int64_t r = 0; r < ranks_; ++r)
      each_run(r, [&, from = packed + bytes_of(r).first](int64_t to, int64_t at, int64_t count) {
        std::memcpy(whole + to, from + at, static_cast<size_t>(count));
      });
  }

 private:
  int64_t ranks_, units_, outer_ = 1, size_ = 1, inner_ = 1;  // inner: bytes
};

std::unique_ptr<Kernel> bind_all_gather(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  const ShardParams p = site.node.get<ShardParams>();
  comm::Collectives& ranks = host_device(device).collectives(p.ranks);
  const Parts parts(site.out[0], p);
  std::byte* const all = parts.is_packed() ? host.out[0] : host.workspace.data();
  return host_kernel([&ranks, parts, all, in = host.in[0], out = host.out[0], own = parts.bytes_of(ranks.rank()),
                      label = label_of(ranks, site)] {
    if (parts.bytes() == 0) return;
    if (own.size() > 0) std::memcpy(all + own.first, in, static_cast<size_t>(own.size()));
    ranks.at(label).all_gather({all, static_cast<size_t>(parts.bytes())}, parts.unit());
    if (all != out) parts.unpack(all, out);
  });
}

std::unique_ptr<Kernel> bind_reduce_scatter(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  const ShardParams p = site.node.get<ShardParams>();
  comm::Collectives& ranks = host_device(device).collectives(p.ranks);
  const Parts parts(site.in[0], p);
  return host_kernel([&ranks, parts, all = host.workspace.data(), in = host.in[0], out = host.out[0],
                      type = site.in[0].dtype, own = parts.bytes_of(ranks.rank()), label = label_of(ranks, site)] {
    if (parts.bytes() == 0) return;
    parts.pack(in, all);
    ranks.at(label).reduce_scatter({all, static_cast<size_t>(parts.bytes())}, type, comm::Reduce::sum, parts.unit());
    if (own.size() > 0) std::memcpy(out, all + own.first, static_cast<size_t>(own.size()));
  });
}

BlockTree tree_of(const Site& s) {
  const auto& p = s.node.get<TreeSumParams>();
  return {p.blocks, p.ranks};
}

int64_t tree_scratch(const Site& s) {
  return comm::Collectives::tree_scratch(s.out[0].bytes(), s.out[0].dtype, tree_of(s));
}

std::unique_ptr<Kernel> bind_tree_sum(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  comm::Collectives& ranks = host_device(device).collectives(site.node.get<TreeSumParams>().ranks);
  std::vector<const std::byte*> own(host.in.begin(), host.in.end());
  return host_kernel([&ranks, tree = tree_of(site), own = std::move(own), out = bytes_of(host.out[0], site.out[0]),
                      type = site.out[0].dtype, label = label_of(ranks, site),
                      scratch = host.workspace] { ranks.at(label).tree_sum(tree, own, out, type, scratch); });
}

// On the compute lane: nothing is sent.
std::unique_ptr<Kernel> bind_local_slice(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  const Parts parts(site.in[0], site.node.get<ShardParams>());
  return host_kernel(
      [parts, in = host.in[0], rank = host.x<int32_t>(1), out = host.out[0], bytes = site.out[0].bytes()] {
        const Part own = parts.bytes_of(*rank);
        LATHE_CHECK(own.size() == bytes, "rank {} has {} bytes, not {}", *rank, own.size(), bytes);
        parts.each_run(*rank, [&](int64_t from, int64_t to, int64_t count) {
          std::memcpy(out + to, in + from, static_cast<size_t>(count));
        });
      });
}

int64_t whole_input(const Site& s) { return s.in[0].bytes(); }
int64_t whole_unless_packed(const Site& s) {
  return Parts(s.out[0], s.node.get<ShardParams>()).is_packed() ? 0 : s.out[0].bytes();
}

int64_t all_reduce_scratch(const Site& s) {
  int64_t bytes = 0;
  for (const TensorType& t : s.in) bytes += t.bytes();
  return comm::Collectives::scratch_for(bytes, size_of(s.in[0].dtype), s.node.get<AllReduceParams>().ranks);
}

int64_t reduce_scatter_scratch(const Site& s) {
  const ShardParams& p = s.node.get<ShardParams>();
  const int64_t unit = Parts(s.in[0], p).unit();
  return unit > 0 ? comm::Collectives::scratch_for(s.in[0].bytes(), unit, p.ranks) : 0;
}

Candidate on_ranks(std::string_view name, std::string (*accepts)(const Site&), int64_t (*workspace)(const Site&),
                   std::unique_ptr<Kernel> (*bind)(Device&, const Site&, const KernelArgs&),
                   int64_t (*scratch)(const Site&) = nullptr) {
  Candidate c{name, accepts, workspace, bind};
  c.lane = Lane::communication;
  c.communication = scratch;
  return c;
}

}  // namespace

std::vector<KernelTable::Row> collective_rows() {
  return {{"all_reduce", on_ranks("cpu_all_reduce", accepts_all, nullptr, bind_all_reduce, all_reduce_scratch)},
          {"all_gather", on_ranks("cpu_all_gather", accepts_all, whole_unless_packed, bind_all_gather)},
          {"reduce_scatter",
           on_ranks("cpu_reduce_scatter", accepts_all, whole_input, bind_reduce_scatter, reduce_scatter_scratch)},
          {"tree_sum", on_ranks("cpu_tree_sum", accepts_all, tree_scratch, bind_tree_sum)},
          {"local_slice", Candidate{"cpu_local_slice", accepts_all, nullptr, bind_local_slice}}};
}

}  // namespace lathe::cpu
