#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

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

// Makes shared memory of `bytes` bytes. Every page exists and the size is sealed, so that no
// process that has the memory can take pages away from another. UNAVAILABLE with the system's
// message.
absl::StatusOr<UniqueFd> NewSharedMemory(size_t bytes);

// Maps all of `memory`. It is writable at both ends, since a GPU cannot be given pages that its
// process may only read (Device::RegisterHost). UNAVAILABLE when that fails.
absl::StatusOr<Mapping> MapShared(const UniqueFd& memory, size_t bytes);

// Maps all of `memory`, which a peer has sent. UNAVAILABLE when that fails; FAILED_PRECONDITION
// when its size is not `bytes` or is not sealed, because reading it could then end this process.
absl::StatusOr<Mapping> MapPeerMemory(const UniqueFd& memory, size_t bytes);

}  // namespace tandem
