#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "kernels/device.h"
#include "transfer/byte_channel.h"
#include "transfer/ipc/greeting.h"
#include "transfer/ipc/lanes.h"
#include "transfer/socket_channel.h"

namespace tandem {

// Either end: the bytes of a unix socket, once both have said who they are.
class IpcChannel : public ByteChannel {
 public:
  explicit IpcChannel(UniqueFd socket) : bytes_(std::move(socket)) {}

  int fd() const override { return bytes_.fd(); }
  bool wants_output() const override { return bytes_.wants_output(); }
  absl::StatusOr<size_t> Read(std::span<const iovec> parts) override { return bytes_.Read(parts); }
  size_t read_ahead_bytes() const override { return bytes_.read_ahead_bytes(); }
  absl::StatusOr<size_t> Write(std::span<const iovec> parts) override {
    return bytes_.Write(parts);
  }

 private:
  SocketChannel bytes_;
};

// The end of who sends KV: it has sent its greeting and waits for the answer.
class ConnectedIpcChannel final : public IpcChannel {
 public:
  // `lane` is the medium's and outlives this.
  ConnectedIpcChannel(UniqueFd socket, PayloadLane& lane)
      : IpcChannel(std::move(socket)), lane_(lane) {}

  // FAILED_PRECONDITION when the peer would refuse again, UNAVAILABLE when it may not.
  absl::StatusOr<bool> Establish() override;
  PayloadLane* lane() override { return &lane_; }

 private:
  PayloadLane& lane_;
  std::array<std::byte, kIpcAnswerBytes> answer_{};
  size_t answer_count_ = 0;
};

// The other end: opens the memory of which the greeting tells, and lets go of it with itself.
class AcceptedIpcChannel final : public IpcChannel {
 public:
  // `device` outlives this.
  AcceptedIpcChannel(UniqueFd socket, Device& device)
      : IpcChannel(std::move(socket)), device_(device) {}

  // With the greeting it takes as long as Device::OpenShared. UNAVAILABLE when this side has no
  // room for the memory.
  absl::StatusOr<bool> Establish() override;
  PayloadLane* lane() override { return lane_ ? &*lane_ : nullptr; }

 private:
  absl::StatusOr<bool> ReceiveGreeting();
  absl::Status OpenMemory();

  Device& device_;
  std::array<std::byte, kIpcGreetingBytes> greeting_{};
  size_t greeting_count_ = 0;
  std::vector<UniqueFd> files_;  // that came with it
  std::optional<OpenedLane> lane_;
};

}  // namespace tandem
