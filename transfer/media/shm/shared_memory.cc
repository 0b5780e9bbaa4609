#include "transfer/media/shm/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/status.h"

namespace tandem {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

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

absl::StatusOr<DeviceBuffer> MapShared(const UniqueFd& memory, size_t bytes) {
  void* mapped =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory.get(), 0);
  if (mapped == MAP_FAILED) {
    return Unavailable("cannot map {} bytes: {}", bytes, ErrnoMessage(errno));
  }
  return DeviceBuffer(static_cast<std::byte*>(mapped), bytes,
                      [](std::byte* data, size_t size) { munmap(data, size); });
}

absl::StatusOr<DeviceBuffer> MapPeerMemory(const UniqueFd& memory, size_t bytes) {
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
  return MapShared(memory, bytes);
}

}  // namespace tandem
