#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "tests/fuzz/landing_worker.h"
#include "transfer/framed/side_channel_payloads.h"

namespace tandem::inbound_fuzz {

// Memory that a peer shares: for each byte of an honest sender an extent of it.
class SharedMemoryOfAPeer final : public SideChannel {
 public:
  static constexpr size_t kExtents = 8;

  SharedMemoryOfAPeer() : memory_(kExtents * kLargestExtent) {
    for (size_t i = 0; i < memory_.size(); ++i) {
      memory_[i] = static_cast<std::byte>(1 + i / kLargestExtent);
    }
  }

  absl::Status Expect(uint32_t bytes) override {
    if (bytes <= memory_.size()) return absl::OkStatus();
    return InvalidArgument("more than there is");
  }
  absl::StatusOr<std::span<const std::byte>> Find(uint64_t place, size_t bytes) const override {
    if (place > memory_.size() || bytes > memory_.size() - place) {
      return InvalidArgument("outside of the memory");
    }
    return std::span(memory_).subspan(place, bytes);
  }

 private:
  std::vector<std::byte> memory_;
};

}  // namespace tandem::inbound_fuzz
