#include "kernels/cpu/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "base/status.h"
#include "kernels/cpu/host_pages.h"

namespace tandem {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;

struct SharedFile {
  UniqueFd file;
  size_t bytes = 0;
};

// The shared files of this process by address, because freeing a buffer passes on only its place
// and size.
class SharedFiles {
 public:
  void Add(const std::byte* data, SharedFile file) {
    absl::MutexLock lock(&mutex_);
    files_.emplace(data, std::move(file));
  }
  void Remove(const std::byte* data) {
    absl::MutexLock lock(&mutex_);
    files_.erase(data);
  }
  // A new descriptor for the file behind `memory`, invalid where the system gives none; nothing
  // where there is no such file.
  std::optional<UniqueFd> Find(std::span<const std::byte> memory) const {
    absl::MutexLock lock(&mutex_);
    const auto found = files_.find(memory.data());
    if (found == files_.end() || found->second.bytes != memory.size()) return std::nullopt;
    return UniqueFd(fcntl(found->second.file.get(), F_DUPFD_CLOEXEC, 0));
  }

 private:
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<const std::byte*, SharedFile> files_ ABSL_GUARDED_BY(mutex_);
};

SharedFiles& Files() {
  static SharedFiles& files = *new SharedFiles;  // buffers may outlive statics
  return files;
}

void FreeShared(std::byte* data, size_t size) {
  Files().Remove(data);
  UnmapPages(data, MappedBytes(size));
}

void FreeOpened(std::byte* data, size_t size) { UnmapPages(data, MappedBytes(size)); }

}  // namespace

absl::StatusOr<DeviceBuffer> AllocateSharedHostMemory(size_t bytes) {
  if (bytes == 0) return DeviceBuffer();
  const size_t mapped_bytes = MappedBytes(bytes);
  UniqueFd file(memfd_create("tandem-kv", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  std::byte* data = nullptr;
  if (file.valid() && ftruncate(file.get(), static_cast<off_t>(mapped_bytes)) == 0) {
    data = MapFilePages(file.get(), mapped_bytes, /*writable=*/true);
  }
  if (data == nullptr) {
    return ResourceExhausted("cpu: {} bytes of shared memory could not be mapped: {}", bytes,
                             ErrnoMessage(errno));
  }
  DeviceBuffer buffer(data, bytes, FreeShared);
  if (fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
    return ResourceExhausted("cpu: shared memory could not be sealed: {}", ErrnoMessage(errno));
  }
  Files().Add(data, {.file = std::move(file), .bytes = bytes});
  return buffer;
}

absl::StatusOr<MemoryHandle> ShareHostMemory(std::span<const std::byte> memory) {
  std::optional<UniqueFd> file = Files().Find(memory);
  if (!file.has_value()) {
    return InvalidArgument("cpu: {} bytes at {} are not what AllocateShared gave", memory.size(),
                           static_cast<const void*>(memory.data()));
  }
  if (!file->valid()) {
    return ResourceExhausted("cpu: no file for memory to share: raise the limit of open files");
  }
  return MemoryHandle{
      .kind = MemoryHandle::Kind::kHostFile, .bytes = memory.size(), .file = *std::move(file)};
}

absl::StatusOr<DeviceBuffer> OpenSharedHostMemory(const MemoryHandle& handle) {
  if (handle.kind != MemoryHandle::Kind::kHostFile) {
    return FailedPrecondition("cpu: memory of kind {} is not the host's: run both on the cpu",
                              static_cast<int>(handle.kind));
  }
  struct stat facts = {};
  if (!handle.file.valid() || fstat(handle.file.get(), &facts) != 0 || handle.bytes == 0 ||
      handle.bytes > static_cast<uint64_t>(facts.st_size) ||
      MappedBytes(handle.bytes) != static_cast<uint64_t>(facts.st_size)) {
    return InvalidArgument("cpu: a handle of {} bytes, but the file behind it has {}", handle.bytes,
                           static_cast<int64_t>(facts.st_size));
  }
  // Without this seal any holder of the file could truncate it, and reading the lost pages would
  // kill this process.
  const int seals = fcntl(handle.file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return InvalidArgument("cpu: a handle of {} bytes whose file may shrink", handle.bytes);
  }
  std::byte* data = MapFilePages(handle.file.get(), MappedBytes(handle.bytes), /*writable=*/false);
  if (data == nullptr) {
    return ResourceExhausted("cpu: {} bytes of another process could not be mapped: {}",
                             handle.bytes, ErrnoMessage(errno));
  }
  return DeviceBuffer(data, handle.bytes, FreeOpened);
}

}  // namespace tandem
