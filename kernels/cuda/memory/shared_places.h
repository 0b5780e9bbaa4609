#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "base/unique_fd.h"
#include "kernels/device.h"

namespace tandem::cuda {

// Where memory that was allocated to be shared, or opened, lies in this process.
struct SharedPlace {
  enum class Origin : uint8_t { kAllocated, kOpened };

  MemoryHandle::Kind kind;
  Origin origin;
  int device;
  size_t bytes;         // of the buffer
  size_t mapped_bytes;  // of kDeviceFile alone
  UniqueFd file;        // of kDeviceFile memory that was allocated here
};

// The shared memory of this process by its address, because freeing a buffer passes on only its
// place and size.
class SharedPlaces {
 public:
  // Returns false where something is registered at `data` already.
  bool Add(const std::byte* data, SharedPlace place);
  // Removes and returns the place at `data`, which must be registered.
  SharedPlace Take(const std::byte* data);
  // The handle of memory that was allocated here, still without its token; none for any other
  // memory.
  std::optional<MemoryHandle> Find(std::span<const std::byte> memory) const;

 private:
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<const std::byte*, SharedPlace> places_ ABSL_GUARDED_BY(mutex_);
};

// The places of this process, created at the first call and never destroyed.
SharedPlaces& AllSharedPlaces();

// The deleter of buffers of shared memory: takes the place at `data` out of AllSharedPlaces, and
// frees, closes or unmaps what lies there.
void FreeSharedPlace(std::byte* data, size_t size);

}  // namespace tandem::cuda
