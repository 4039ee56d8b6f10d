// Collectives between ranks, over the group that the device was opened with (comm/collectives.h). On a lane of their
// own, beside what is computed.
#include "ops/collective.h"

#include <cstring>

#include "backend/cpu/families.h"
#include "backend/cpu/host_kernel.h"
#include "comm/collectives.h"

namespace lathe::cpu {
namespace {

std::span<std::byte> bytes_of(std::byte* data, const TensorType& type) {
  return {data, static_cast<size_t>(type.bytes())};
}

std::string accepts_first_axis(const Site& s) {
  return s.node.get<ShardParams>().axis == 0 ? "" : "split along another axis than the first";
}

std::unique_ptr<Kernel> bind_all_reduce(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  comm::Collectives& ranks = host_device(device).collectives(site.node.get<AllReduceParams>().ranks);
  const auto out = bytes_of(host.out[0], site.out[0]);
  return host_kernel([&ranks, out, in = host.in[0], type = site.out[0].dtype] {
    if (!out.empty()) std::memcpy(out.data(), in, out.size());
    ranks.all_reduce(out, type);
  });
}

// What is a sample's is one unit: parts are whole samples.
int64_t unit_bytes(const TensorType& whole, const ShardParams& p) { return whole.bytes() / p.samples; }

std::span<std::byte> own_part(const comm::Collectives& ranks, std::span<std::byte> whole, const ShardParams& p) {
  const auto unit = static_cast<int64_t>(whole.size()) / p.samples;
  const Part own = ranks.part(p.samples, ranks.rank());
  return whole.subspan(static_cast<size_t>(own.first * unit), static_cast<size_t>(own.size() * unit));
}

std::unique_ptr<Kernel> bind_all_gather(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  const ShardParams p = site.node.get<ShardParams>();
  comm::Collectives& ranks = host_device(device).collectives(p.ranks);
  const auto out = bytes_of(host.out[0], site.out[0]), own = own_part(ranks, out, p);
  return host_kernel([&ranks, out, own, in = host.in[0], unit = unit_bytes(site.out[0], p)] {
    if (!own.empty()) std::memcpy(own.data(), in, own.size());
    if (unit > 0) ranks.all_gather(out, unit);
  });
}

std::unique_ptr<Kernel> bind_reduce_scatter(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  const ShardParams p = site.node.get<ShardParams>();
  comm::Collectives& ranks = host_device(device).collectives(p.ranks);
  const auto all = bytes_of(host.workspace.data(), site.in[0]), own = own_part(ranks, all, p);
  return host_kernel([&ranks, all, own, in = host.in[0], out = host.out[0], type = site.in[0].dtype,
                      unit = unit_bytes(site.in[0], p)] {
    if (unit == 0) return;
    std::memcpy(all.data(), in, all.size());
    ranks.reduce_scatter(all, type, comm::Reduce::sum, unit);
    if (!own.empty()) std::memcpy(out, own.data(), own.size());
  });
}

int64_t whole_input(const Site& s) { return s.in[0].bytes(); }

Candidate on_ranks(std::string_view name, std::string (*accepts)(const Site&), int64_t (*workspace)(const Site&),
                   std::unique_ptr<Kernel> (*bind)(Device&, const Site&, const KernelArgs&)) {
  Candidate c{name, accepts, workspace, bind};
  c.lane = Lane::communication;
  return c;
}

}  // namespace

std::vector<KernelTable::Row> collective_rows() {
  return {{"all_reduce", on_ranks("cpu_all_reduce", accepts_all, nullptr, bind_all_reduce)},
          {"all_gather", on_ranks("cpu_all_gather", accepts_first_axis, nullptr, bind_all_gather)},
          {"reduce_scatter", on_ranks("cpu_reduce_scatter", accepts_first_axis, whole_input, bind_reduce_scatter)}};
}

}  // namespace lathe::cpu
