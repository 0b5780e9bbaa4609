#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "transfer/media/host_listener.h"
#include "transfer/media/medium.h"
#include "transfer/media/shm/core_choice.h"
#include "transfer/media/shm/side_channels.h"
#include "transfer/media/shm/slot_pool.h"

namespace tandem {

struct ShmOptions {
  // The device whose memory holds the payloads; outlives the medium.
  Device* device = nullptr;
  // Shared memory for the connections that peers make, taken when the medium is made. It holds one
  // slot for each connection; further connections are refused. 0: no peer connects to this side.
  size_t buffer_bytes = size_t{64} << 20;
  // The shared memory of one connection: two rings for frames, a page of control, and the area for
  // payloads.
  size_t slot_bytes = size_t{4} << 20;
  size_t ring_bytes = size_t{64} << 10;
  // The largest payload that is sent. Two must fit in the area of a slot, here and at the peers.
  size_t max_payload_bytes = size_t{1} << 20;
};

// The slot size for payloads of at most `max_payload_bytes` in the memory of `device`.
size_t ShmSlotBytes(const Device& device, size_t max_payload_bytes);

// Connects processes of the same host, network namespace and user through shared memory that the
// devices of both sides reach (docs/media/shm.md). The accepting side provides the memory. Outlives
// its channels.
class ShmMedium final : public Medium {
 public:
  // INVALID_ARGUMENT for impossible sizes, UNAVAILABLE when the system has not enough shared memory;
  // other errors as Device::RegisterHost and NewStream.
  static absl::StatusOr<std::unique_ptr<ShmMedium>> Open(const ShmOptions& options);

  std::string_view name() const override { return "shm"; }
  std::string address() const override { return listener_.address().Text(); }
  absl::Status MayReach(std::string_view peer) const override { return listener_.MayReach(peer); }

  int listener_fd() const override { return listener_.fd(); }
  // Refuses peers for which there is no slot.
  absl::StatusOr<std::unique_ptr<ByteChannel>> Accept() override;
  absl::StatusOr<std::unique_ptr<ByteChannel>> Connect(std::string_view peer) override;

  bool has_lanes() const override { return true; }
  absl::Status MayCarry(std::span<const std::byte> payload) const override;
  size_t buffer_bytes() const override {
    return slots_->memory().size() + copier_.stream.buffer_bytes();
  }

  // All slots, one after the other. Thread-safe.
  std::span<std::byte> memory() const { return slots_->memory(); }
  // The number of peers that were refused because no slot was free. Thread: the loop's.
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
  const DeviceBuffer registration_;  // of the slots, and destroyed before them
  AreaCopier copier_;
  CoreChoice core_choice_;
  uint64_t refused_for_room_ = 0;
};

}  // namespace tandem
