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
#include "transfer/media/ipc/greeting.h"
#include "transfer/media/ipc/side_channels.h"
#include "transfer/media/socket_channel.h"
#include "transfer/wire/byte_channel.h"

namespace tandem {

// The part that both ends share: the bytes of a unix socket.
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

// The end that sends KV. The greeting is on its way; Establish waits for the answer.
class ConnectedIpcChannel final : public IpcChannel {
 public:
  // `side_channel` is the medium's and outlives this.
  ConnectedIpcChannel(UniqueFd socket, PayloadLane& side_channel)
      : IpcChannel(std::move(socket)), side_channel_(side_channel) {}

  // FAILED_PRECONDITION when the peer would refuse again, UNAVAILABLE when a later attempt may
  // succeed.
  absl::StatusOr<bool> Establish() override;
  PayloadLane* lane() override { return &side_channel_; }

 private:
  PayloadLane& side_channel_;
  std::array<std::byte, kIpcAnswerBytes> answer_{};
  size_t answer_count_ = 0;
};

// The end that receives KV. It opens the memory that the greeting describes and closes it in its
// destructor.
class AcceptedIpcChannel final : public IpcChannel {
 public:
  // `device` outlives this.
  AcceptedIpcChannel(UniqueFd socket, Device& device)
      : IpcChannel(std::move(socket)), device_(device) {}

  // The call that completes the greeting takes as long as Device::OpenShared. UNAVAILABLE when this
  // side has no room for the memory.
  absl::StatusOr<bool> Establish() override;
  PayloadLane* lane() override { return side_channel_ ? &*side_channel_ : nullptr; }

 private:
  absl::StatusOr<bool> ReceiveGreeting();
  absl::Status OpenMemory();

  Device& device_;
  std::array<std::byte, kIpcGreetingBytes> greeting_{};
  size_t greeting_count_ = 0;
  std::vector<UniqueFd> files_;  // of the greeting
  std::optional<IpcReceiveSideChannel> side_channel_;
};

}  // namespace tandem
