#include "backend/host_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/checked.h"

namespace lathe {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

}  // namespace

void HostStream::copy_in(const Buffer& dst, const void* src) {
  if (dst.bytes > 0) std::memcpy(device_.address(dst), src, static_cast<size_t>(dst.bytes));
}

void HostStream::copy_out(void* dst, const Buffer& src) {
  if (src.bytes > 0) std::memcpy(dst, device_.address(src), static_cast<size_t>(src.bytes));
}

void HostStream::copy(const Buffer& dst, const Buffer& src) {
  LATHE_CHECK(dst.bytes == src.bytes, "copy of {} bytes to {} bytes", src.bytes, dst.bytes);
  if (src.bytes > 0) std::memmove(device_.address(dst), device_.address(src), static_cast<size_t>(src.bytes));
}

HostDevice::HostDevice(Target target, int threads)
    : target_(std::move(target)), pool_(threads > 0 ? threads : available_threads()) {
  target_.threads = pool_.threads();
}

void HostDevice::Free::operator()(std::byte* p) const { std::free(p); }

// Every page is written here, by all threads: the memory is there before step 0 or not at all, and pages lie near the
// threads that use them. Large blocks stand on huge pages, which saves TLB misses in matrix multiplications.
HostDevice::Memory HostDevice::make(int64_t bytes) {
  const bool large = bytes >= kHugePage;
  const int64_t alignment = std::max<int64_t>(large ? kHugePage : 64, target_.alignment);
  const int64_t size = round_up(std::max<int64_t>(bytes, 1), std::max<int64_t>(64, target_.alignment));
  void* p = nullptr;
  if (posix_memalign(&p, static_cast<size_t>(alignment), static_cast<size_t>(size)) != 0)
    throw DeviceError(fmt::format("{}: cannot allocate {} bytes of host memory", target_.name, size));
  if (large) madvise(p, static_cast<size_t>(size), MADV_HUGEPAGE);  // a wish: failure changes nothing but speed
  Memory m{std::unique_ptr<std::byte[], Free>(static_cast<std::byte*>(p)), bytes};
  pool_.run_blocks(size, int64_t{16} << 20, [&](int64_t begin, int64_t end) {
    std::memset(m.data.get() + begin, 0, static_cast<size_t>(end - begin));
  });
  return m;
}

void HostDevice::allocate(std::span<const int64_t> segment_bytes) {
  LATHE_CHECK(!allocated_, "the arena is allocated once");
  for (int64_t bytes : segment_bytes) segments_.push_back(make(bytes));
  allocated_ = true;
}

std::byte* HostDevice::allocate_staging(int64_t bytes) {
  staging_.push_back(make(bytes));
  return staging_.back().data.get();
}

std::byte* HostDevice::address(const Buffer& b) const {
  LATHE_CHECK(b.bytes >= 0 && b.offset >= 0 && b.segment >= 0, "segment {}, offset {}, bytes {}", b.segment, b.offset,
              b.bytes);
  if (b.bytes == 0) return nullptr;
  LATHE_CHECK(static_cast<size_t>(b.segment) < segments_.size(), "no segment {}", b.segment);
  const Memory& m = segments_[static_cast<size_t>(b.segment)];
  LATHE_CHECK(b.offset <= m.bytes - b.bytes, "{} bytes at {} in a segment of {}", b.bytes, b.offset, m.bytes);
  return m.data.get() + b.offset;
}

HostDevice& host_device(Device& d) {
  auto* host = dynamic_cast<HostDevice*>(&d);
  LATHE_CHECK(host, "a host kernel was bound to the device {}", d.target().name);
  return *host;
}

}  // namespace lathe
