#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "kernels/device.h"
#include "transfer/media/shm/doorbell.h"
#include "transfer/media/shm/ring_stream.h"
#include "transfer/media/shm/side_channels.h"
#include "transfer/media/shm/slot_pool.h"
#include "transfer/wire/byte_channel.h"

namespace tandem {

// The accepting end. It has a slot, which the greeting has told the peer.
class AcceptedShmChannel final : public ByteChannel {
 public:
  // `slot` was taken from `slots`, which outlives this object as does `core_choice`. `watch` has the
  // socket and the doorbell.
  AcceptedShmChannel(UniqueFd socket, UniqueFd watch, Doorbell doorbell, CoreChoice& core_choice,
                     SlotPool& slots, size_t slot);
  ~AcceptedShmChannel() override;

  int fd() const override { return watch_.get(); }
  bool wants_output() const override { return false; }
  absl::StatusOr<bool> Establish() override { return true; }
  absl::StatusOr<size_t> Read(std::span<const iovec> parts) override { return stream_.Read(parts); }
  absl::StatusOr<size_t> Write(std::span<const iovec> parts) override {
    return stream_.Write(parts);
  }
  PayloadLane* lane() override { return &side_channel_; }

 private:
  UniqueFd socket_;
  const UniqueFd watch_;
  SlotPool& slots_;
  const size_t slot_;
  RingStream stream_;
  ShmReceiveSideChannel side_channel_;
};

// The connecting end. It waits for the setup message and maps the slot that comes with it.
class ConnectedShmChannel final : public ByteChannel {
 public:
  // `watch` has the socket. The medium's `device` and `copier` outlive this object.
  ConnectedShmChannel(UniqueFd socket, UniqueFd watch, Device& device, AreaCopier& copier)
      : socket_(std::move(socket)), watch_(std::move(watch)), device_(device), copier_(copier) {}

  int fd() const override { return watch_.get(); }
  bool wants_output() const override { return false; }
  // UNAVAILABLE also when the accepting side has no slot left, which the message says. The call that
  // completes the setup message takes as long as Device::RegisterHost.
  absl::StatusOr<bool> Establish() override;
  absl::StatusOr<size_t> Read(std::span<const iovec> parts) override;
  absl::StatusOr<size_t> Write(std::span<const iovec> parts) override;
  PayloadLane* lane() override { return side_channel_ ? &*side_channel_ : nullptr; }

 private:
  absl::Status MapSlot();

  // The order matters: the memory is unmapped before the socket closes (SlotPool).
  const UniqueFd socket_;
  const UniqueFd watch_;
  Device& device_;
  AreaCopier& copier_;
  Mapping mapping_;
  DeviceBuffer registration_;  // of the mapping, and destroyed before it
  std::array<std::byte, kShmSetupBytes> setup_{};
  size_t setup_count_ = 0;
  std::vector<UniqueFd> descriptors_;  // of the setup message
  std::optional<RingStream> stream_;
  std::optional<ShmSendSideChannel> side_channel_;
};

}  // namespace tandem
