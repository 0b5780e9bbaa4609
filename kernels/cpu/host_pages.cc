#include "kernels/cpu/host_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace tandem {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

std::byte* Map(void* at, size_t bytes, int protection, int flags, int file) {
  void* data = mmap(at, bytes, protection, flags, file, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

// Reserves addresses aligned to a huge page: one page more than needed, of which the rest is given
// back.
std::byte* ReserveHugeAligned(size_t bytes) {
  std::byte* start = Map(nullptr, bytes + kHugePageBytes, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
  if (start == nullptr) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(start);
  const size_t before = RoundUp(address, kHugePageBytes) - address;
  const size_t after = kHugePageBytes - before;
  std::byte* data = start + before;
  if (before > 0) munmap(start, before);
  if (after > 0) munmap(data + bytes, after);
  return data;
}

std::byte* MapAligned(size_t bytes, int protection, int flags, int file) {
  if (bytes < kHugePageBytes) return Map(nullptr, bytes, protection, flags, file);
  std::byte* reserved = ReserveHugeAligned(bytes);
  if (reserved == nullptr) return nullptr;
  std::byte* data = Map(reserved, bytes, protection, flags | MAP_FIXED, file);
  if (data == nullptr) {
    munmap(reserved, bytes);
    return nullptr;
  }
  madvise(data, bytes, MADV_HUGEPAGE);  // advice: where it is refused, small pages serve too
  return data;
}

}  // namespace

size_t MappedBytes(size_t bytes) {
  static const size_t page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return RoundUp(bytes, bytes >= kHugePageBytes ? kHugePageBytes : page_bytes);
}

std::byte* MapPages(size_t mapped_bytes) {
  return MapAligned(mapped_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
}

std::byte* MapFilePages(int file, size_t mapped_bytes, bool writable) {
  return MapAligned(mapped_bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, file);
}

void UnmapPages(std::byte* data, size_t mapped_bytes) { munmap(data, mapped_bytes); }

}  // namespace tandem
