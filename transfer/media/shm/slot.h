#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "transfer/media/shm/area.h"
#include "transfer/media/shm/ring.h"
#include "transfer/media/shm/setup.h"

namespace tandem {

// Pages that this process has mapped; the destructor unmaps them. Move-only.
class Mapping {
 public:
  Mapping() = default;
  explicit Mapping(std::span<std::byte> bytes) : bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

struct SlotParts {
  // Has a page of its own, which is all zeros when a connection begins.
  struct Control {
    RingControl forward;
    RingControl back;
    AreaControl area;
  };

  std::span<std::byte> area;
  std::span<std::byte> forward;
  std::span<std::byte> back;
  Control* control = nullptr;
};

// `slot` has layout.slot_bytes() bytes.
SlotParts PartsOf(const SlotLayout& layout, std::span<std::byte> slot);

// Reserves address space without memory, aligned for huge pages. UNAVAILABLE names the size.
absl::StatusOr<Mapping> ReserveAddresses(size_t bytes);

// Makes shared memory of that many bytes. Every page exists and the size is sealed, so that no
// process that has the memory can take pages away from another. UNAVAILABLE with the system's
// message.
absl::StatusOr<UniqueFd> NewSharedMemory(size_t bytes);

// Maps all of `memory` over the reserved addresses `place`. UNAVAILABLE when that fails.
absl::Status MapOver(const UniqueFd& memory, std::span<std::byte> place);

// Maps memory that a peer has sent. FAILED_PRECONDITION when its size is not `bytes` or is not
// sealed, because reading it could then end this process.
absl::StatusOr<Mapping> MapPeerMemory(const UniqueFd& memory, size_t bytes);

}  // namespace tandem
