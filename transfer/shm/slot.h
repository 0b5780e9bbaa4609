#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "transfer/shm/area.h"
#include "transfer/shm/ring.h"
#include "transfer/shm/setup.h"

namespace tandem {

// Pages of this process, unmapped by the destructor. Move-only.
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

// The parts of a slot.
struct SlotParts {
  // On a page of its own; a fresh one of zeros is what both sides begin with.
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

// Address space without memory behind it, aligned for huge pages. UNAVAILABLE with the size.
absl::StatusOr<Mapping> ReserveAddresses(size_t bytes);

// A new piece of shared memory of that many bytes, every page there, its size sealed: no process
// that has it can take pages from under another. UNAVAILABLE with the system's message.
absl::StatusOr<UniqueFd> NewSharedMemory(size_t bytes);

// Maps all of it over `place`, which stays reserved by its owner. UNAVAILABLE.
absl::Status MapOver(const UniqueFd& memory, std::span<std::byte> place);

// Maps what a peer gave. FAILED_PRECONDITION when its size is not `bytes` or not sealed: then
// reading it could end this process.
absl::StatusOr<Mapping> MapPeerMemory(const UniqueFd& memory, size_t bytes);

}  // namespace tandem
