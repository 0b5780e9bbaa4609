#include "transfer/media/shm/slot.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "base/status.h"

namespace tandem {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::byte* RoundUp(std::byte* address, size_t alignment) {
  const auto number = reinterpret_cast<uintptr_t>(address);
  return address + ((number + alignment - 1) / alignment * alignment - number);
}

}  // namespace

Mapping::~Mapping() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

SlotParts PartsOf(const SlotLayout& layout, std::span<std::byte> slot) {
  static_assert(sizeof(SlotParts::Control) <= SlotLayout::kControlBytes);
  return {.area = slot.first(layout.area_bytes),
          .forward = slot.subspan(layout.forward_offset(), layout.forward_bytes),
          .back = slot.subspan(layout.back_offset(), layout.back_bytes),
          .control = reinterpret_cast<SlotParts::Control*>(slot.data() + layout.control_offset())};
}

absl::StatusOr<Mapping> ReserveAddresses(size_t bytes) {
  const size_t padded = bytes + kHugePageBytes;
  void* place =
      mmap(nullptr, padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) {
    return Unavailable("cannot reserve {} bytes of addresses: {}", padded, ErrnoMessage(errno));
  }
  auto* begin = static_cast<std::byte*>(place);
  std::byte* aligned = RoundUp(begin, kHugePageBytes);
  const size_t before = static_cast<size_t>(aligned - begin);
  if (before > 0) munmap(begin, before);
  if (before < kHugePageBytes) munmap(aligned + bytes, kHugePageBytes - before);
  return Mapping({aligned, bytes});
}

absl::StatusOr<UniqueFd> NewSharedMemory(size_t bytes) {
  UniqueFd memory(memfd_create("tandem-kv", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const auto failed = [&](const char* call) {
    return Unavailable("cannot set {} bytes of shared memory aside: {}: {}", bytes, call,
                       ErrnoMessage(errno));
  };
  if (!memory.valid()) return failed("memfd_create");
  if (ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0) return failed("ftruncate");
  // Takes the pages now, because a lack of memory would later be a signal instead of an error.
  if (fallocate(memory.get(), 0, 0, static_cast<off_t>(bytes)) != 0) return failed("fallocate");
  if (fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0) return failed("F_ADD_SEALS");
  return memory;
}

absl::Status MapOver(const UniqueFd& memory, std::span<std::byte> place) {
  void* mapped = mmap(place.data(), place.size(), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_FIXED | MAP_POPULATE, memory.get(), 0);
  if (mapped != MAP_FAILED) return absl::OkStatus();
  return Unavailable("cannot map {} bytes: {}", place.size(), ErrnoMessage(errno));
}

absl::StatusOr<Mapping> MapPeerMemory(const UniqueFd& memory, size_t bytes) {
  struct stat info {};
  if (!memory.valid() || fstat(memory.get(), &info) != 0) {
    return FailedPrecondition("the peer sent no shared memory");
  }
  if (info.st_size != static_cast<off_t>(bytes)) {
    return FailedPrecondition("the peer's shared memory has {} bytes: it said {}", info.st_size,
                              bytes);
  }
  const int seals = fcntl(memory.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return FailedPrecondition("the peer's shared memory is not sealed (seals {:#x})", seals);
  }
  void* mapped =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory.get(), 0);
  if (mapped == MAP_FAILED) {
    return Unavailable("cannot map {} bytes: {}", bytes, ErrnoMessage(errno));
  }
  return Mapping({static_cast<std::byte*>(mapped), bytes});
}

}  // namespace tandem
