#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "kernels/device.h"
#include "transfer/byte_channel.h"
#include "transfer/shm/doorbell.h"
#include "transfer/shm/lanes.h"
#include "transfer/shm/ring_stream.h"
#include "transfer/shm/slot_pool.h"

namespace tandem {

// The acceptor's end: it has the slot, the peer has been told of it.
class AcceptedShmChannel final : public ByteChannel {
 public:
  // `slot` was taken from `slots`, which outlives this; `watch` has the socket and the doorbell.
  // `core_choice` is the loop's.
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
  PayloadLane* lane() override { return &lane_; }

 private:
  UniqueFd socket_;
  const UniqueFd watch_;
  SlotPool& slots_;
  const size_t slot_;
  RingStream stream_;
  AreaReceiveLane lane_;
};

// The other end: waits for the setup message and maps the slot that comes with it.
class ConnectedShmChannel final : public ByteChannel {
 public:
  // `watch` has the socket. `device` and `copier`, the medium's, outlive this.
  ConnectedShmChannel(UniqueFd socket, UniqueFd watch, Device& device, AreaCopier& copier)
      : socket_(std::move(socket)), watch_(std::move(watch)), device_(device), copier_(copier) {}

  int fd() const override { return watch_.get(); }
  bool wants_output() const override { return false; }
  // UNAVAILABLE too when the acceptor has no slot left; its message says so. With the setup message
  // it takes as long as Device::RegisterHost.
  absl::StatusOr<bool> Establish() override;
  absl::StatusOr<size_t> Read(std::span<const iovec> parts) override;
  absl::StatusOr<size_t> Write(std::span<const iovec> parts) override;
  PayloadLane* lane() override { return lane_ ? &*lane_ : nullptr; }

 private:
  absl::Status MapSlot();

  // In this order: the memory is unmapped before the socket closes (transfer/shm/slot_pool.h).
  const UniqueFd socket_;
  const UniqueFd watch_;
  Device& device_;
  AreaCopier& copier_;
  Mapping mapping_;
  DeviceBuffer registration_;  // of the mapping; gone before it
  std::array<std::byte, kShmSetupBytes> setup_{};
  size_t setup_count_ = 0;
  std::vector<UniqueFd> descriptors_;  // that came with it
  std::optional<RingStream> stream_;
  std::optional<AreaSendLane> lane_;
};

}  // namespace tandem
