#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "transfer/media/memory_greeting.h"
#include "transfer/media/socket_channel.h"
#include "transfer/wire/byte_channel.h"

namespace tandem {

// The part that both ends share: the bytes of a unix socket.
class HostChannel : public ByteChannel {
 public:
  explicit HostChannel(UniqueFd socket) : bytes_(std::move(socket)) {}

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
class ConnectedHostChannel final : public HostChannel {
 public:
  ConnectedHostChannel(UniqueFd socket, std::shared_ptr<SideChannel> side_channel)
      : HostChannel(std::move(socket)), side_channel_(std::move(side_channel)) {}

  // FAILED_PRECONDITION when the peer would refuse again, UNAVAILABLE when a later attempt may
  // succeed.
  absl::StatusOr<bool> Establish() override;
  SideChannel* side_channel() override { return side_channel_.get(); }

 private:
  const std::shared_ptr<SideChannel> side_channel_;
  std::array<std::byte, kMemoryAnswerBytes> answer_{};
  size_t answer_count_ = 0;
};

// Opens the memory that a peer shares.
class MemoryOpener {
 public:
  // `files` are all that came with the greeting. Errors as Device::OpenShared; RESOURCE_EXHAUSTED and
  // UNAVAILABLE say that a later attempt may succeed. May take milliseconds.
  virtual absl::StatusOr<std::unique_ptr<SideChannel>> OpenMemory(const MemoryGreeting& greeting,
                                                                  std::vector<UniqueFd> files) = 0;

 protected:
  ~MemoryOpener() = default;
};

// The end that receives KV. It opens the memory that the greeting describes and closes it in its
// destructor.
class AcceptedHostChannel final : public HostChannel {
 public:
  // `opener` outlives this.
  AcceptedHostChannel(UniqueFd socket, MemoryOpener& opener)
      : HostChannel(std::move(socket)), opener_(opener) {}

  // The call that completes the greeting takes as long as MemoryOpener::OpenMemory. UNAVAILABLE when
  // this side has no room for the memory.
  absl::StatusOr<bool> Establish() override;
  SideChannel* side_channel() override { return side_channel_.get(); }

 private:
  absl::StatusOr<bool> ReceiveGreeting();
  absl::Status OpenMemory();

  MemoryOpener& opener_;
  std::array<std::byte, kMemoryGreetingBytes> greeting_{};
  size_t greeting_count_ = 0;
  std::vector<UniqueFd> files_;  // of the greeting
  std::unique_ptr<SideChannel> side_channel_;
};

}  // namespace tandem
