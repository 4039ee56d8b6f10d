#include "backend/host_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/checked.h"

namespace lathe {
namespace {

constexpr int64_t kPage = 4096, kHugePage = int64_t{2} << 20;

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

HostDevice::HostDevice(Target target, int threads, comm::Group* group)
    : target_(std::move(target)), pool_(threads > 0 ? threads : available_threads()) {
  target_.threads = pool_.threads();
  if (group) collectives_.emplace(*group, std::span<std::byte>());  // until allocate_communication()
}

comm::Collectives& HostDevice::collectives(int64_t ranks) {
  LATHE_USER_CHECK(collectives_ && collectives_->size() == ranks,
                   "the step is for {} ranks; the device was opened with {}", ranks,
                   collectives_ ? fmt::format("a group of {}", collectives_->size()) : "no group");
  return *collectives_;
}

comm::Collectives& HostDevice::collectives() {
  LATHE_USER_CHECK(collectives_, "the device was opened without a group of ranks");
  return *collectives_;
}

void HostDevice::Unmap::operator()(void* p) const { munmap(p, bytes); }

// Fresh pages are zero. Each is touched here, by all threads: the memory is there before step 0 or not at all, and
// pages lie near the threads that use them. Large blocks stand on huge pages, which saves TLB misses in matrix
// multiplications.
HostDevice::Memory HostDevice::make(int64_t bytes) {
  const bool large = bytes >= kHugePage;
  const int64_t alignment = std::max<int64_t>(large ? kHugePage : kPage, target_.alignment);
  const int64_t size = checked_add(round_up(std::max<int64_t>(bytes, 1), kPage), alignment, "bytes of host memory");
  void* p = mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED)
    throw DeviceError(fmt::format("{}: cannot allocate {} bytes of host memory", target_.name, bytes));
  Memory m{{p, Unmap{static_cast<size_t>(size)}}, nullptr, bytes};
  m.data =
      static_cast<std::byte*>(p) + round_up(reinterpret_cast<intptr_t>(p), alignment) - reinterpret_cast<intptr_t>(p);
  // A wish: failure changes nothing but speed.
  if (large) madvise(m.data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  pool_.run_blocks(bytes, int64_t{16} << 20, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at += kPage) *static_cast<volatile std::byte*>(m.data + at) = std::byte{0};
  });
  return m;
}

void HostDevice::allocate(std::span<const int64_t> segment_bytes) {
  LATHE_USER_CHECK(!allocated_, "{}: expected one allocation of the arena, got a second", target_.name);
  for (int64_t bytes : segment_bytes) segments_.push_back(make(bytes));
  allocated_ = true;
}

std::byte* HostDevice::allocate_staging(int64_t bytes) {
  staging_.push_back(make(bytes));
  return staging_.back().data;
}

void HostDevice::allocate_communication(int64_t bytes) {
  std::byte* const memory = allocate_staging(bytes);
  if (collectives_) collectives_->lend({memory, static_cast<size_t>(bytes)});
}

std::byte* HostDevice::address(const Buffer& b) const {
  LATHE_CHECK(b.bytes >= 0 && b.offset >= 0 && b.segment >= 0, "segment {}, offset {}, bytes {}", b.segment, b.offset,
              b.bytes);
  if (b.bytes == 0) return nullptr;
  LATHE_USER_CHECK(allocated_, "{}: expected Device::allocate() before a Program is bound", target_.name);
  LATHE_CHECK(static_cast<size_t>(b.segment) < segments_.size(), "no segment {}", b.segment);
  const Memory& m = segments_[static_cast<size_t>(b.segment)];
  LATHE_CHECK(b.offset <= m.bytes - b.bytes, "{} bytes at {} in a segment of {}", b.bytes, b.offset, m.bytes);
  return m.data + b.offset;
}

HostDevice& host_device(Device& d) {
  auto* host = dynamic_cast<HostDevice*>(&d);
  LATHE_CHECK(host, "a host kernel was bound to the device {}", d.target().name);
  return *host;
}

}  // namespace lathe
