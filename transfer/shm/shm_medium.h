#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "transfer/host_listener.h"
#include "transfer/medium.h"
#include "transfer/shm/core_choice.h"
#include "transfer/shm/lanes.h"
#include "transfer/shm/slot_pool.h"

namespace tandem {

struct ShmOptions {
  // Where payloads lie and land; outlives the medium.
  Device* device = nullptr;
  // Shared memory for the connections that peers make, taken when the medium is made: as many
  // connections as slots fit, others are refused. 0: none are made to here.
  size_t buffer_bytes = size_t{64} << 20;
  // Of one connection; all but two rings for frames and a page is the area for payloads.
  size_t slot_bytes = size_t{4} << 20;
  size_t ring_bytes = size_t{64} << 10;
  // The largest payload that is sent: two fit in the area, here and at peers.
  size_t max_payload_bytes = size_t{1} << 20;
};

// Of payloads of at most so many bytes in the memory of `device`.
size_t ShmSlotBytes(const Device& device, size_t max_payload_bytes);

// Peers of the same host, network namespace and user, through shared memory that the device of
// either side reaches (docs/transports.md). The side that is connected to gives it. Outlives its
// channels.
class ShmMedium final : public Medium {
 public:
  // INVALID_ARGUMENT for sizes that cannot be, UNAVAILABLE when the system has no such memory;
  // errors as Device::RegisterHost and NewStream.
  static absl::StatusOr<std::unique_ptr<ShmMedium>> Open(const ShmOptions& options);

  std::string_view name() const override { return "shm"; }
  std::string address() const override { return listener_.address().Text(); }
  absl::Status MayReach(std::string_view peer) const override { return listener_.MayReach(peer); }

  int listener_fd() const override { return listener_.fd(); }
  // A peer for which there is no slot is told so and not returned.
  absl::StatusOr<std::unique_ptr<ByteChannel>> Accept() override;
  absl::StatusOr<std::unique_ptr<ByteChannel>> Connect(std::string_view peer) override;

  bool has_lanes() const override { return true; }
  absl::Status MayCarry(std::span<const std::byte> payload) const override;
  size_t buffer_bytes() const override {
    return slots_->memory().size() + copier_.stream.buffer_bytes();
  }

  // All slots, one behind the other. Thread-safe.
  std::span<std::byte> memory() const { return slots_->memory(); }
  // Peers that were refused since the start, for want of a slot. Thread: the loop's.
  uint64_t refused_for_room() const { return refused_for_room_; }

 private:
  ShmMedium(Device& device, HostListener listener, std::unique_ptr<SlotPool> slots,
            DeviceBuffer registration, AreaCopier copier)
      : device_(device),
        listener_(std::move(listener)),
        slots_(std::move(slots)),
        registration_(std::move(registration)),
        copier_(std::move(copier)) {}

  std::unique_ptr<ByteChannel> Welcome(UniqueFd socket);
  void RefuseForRoom(const UniqueFd& socket);

  Device& device_;
  HostListener listener_;
  const std::unique_ptr<SlotPool> slots_;
  const DeviceBuffer registration_;  // of the slots; gone before them
  AreaCopier copier_;
  CoreChoice core_choice_;
  uint64_t refused_for_room_ = 0;
};

}  // namespace tandem
