#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "transfer/host_listener.h"
#include "transfer/medium.h"
#include "transfer/shm/core_choice.h"
#include "transfer/shm/slot_pool.h"

namespace tandem {

struct ShmOptions {
  // Shared memory for the connections that peers make, taken when the medium is made: as many
  // connections as slots fit, others are refused.
  size_t buffer_bytes = size_t{64} << 20;
  // Of one connection; all but the ring back and a page is the ring toward this process.
  size_t slot_bytes = size_t{4} << 20;
  size_t back_ring_bytes = size_t{64} << 10;
};

// Peers of the same host, network namespace and user, through rings in shared memory
// (docs/transports.md). The side that is connected to gives the memory. Outlives its channels.
class ShmMedium final : public Medium {
 public:
  // INVALID_ARGUMENT for sizes that cannot be, UNAVAILABLE when the system has no such memory.
  static absl::StatusOr<std::unique_ptr<ShmMedium>> Open(const ShmOptions& options);

  std::string_view name() const override { return "shm"; }
  std::string address() const override { return listener_.address().Text(); }
  absl::Status MayReach(std::string_view peer) const override { return listener_.MayReach(peer); }

  int listener_fd() const override { return listener_.fd(); }
  // A peer of another user, or for which there is no slot, is told so and not returned.
  absl::StatusOr<std::unique_ptr<ByteChannel>> Accept() override;
  absl::StatusOr<std::unique_ptr<ByteChannel>> Connect(std::string_view peer) override;

  size_t buffer_bytes() const override { return slots_->memory().size(); }

  // All slots, one behind the other: for registering with a device. Thread-safe.
  std::span<std::byte> memory() const { return slots_->memory(); }
  // Peers that were refused since the start. Thread: the loop's.
  uint64_t refused_strangers() const { return refused_strangers_; }
  uint64_t refused_for_room() const { return refused_for_room_; }

 private:
  ShmMedium(HostListener listener, std::unique_ptr<SlotPool> slots)
      : listener_(std::move(listener)), slots_(std::move(slots)) {}

  std::unique_ptr<ByteChannel> Welcome(UniqueFd socket);
  void Refuse(const UniqueFd& socket, absl::StatusCode code, uint64_t& count);

  HostListener listener_;
  const std::unique_ptr<SlotPool> slots_;
  CoreChoice core_choice_;
  uint64_t refused_strangers_ = 0;
  uint64_t refused_for_room_ = 0;
};

}  // namespace tandem
