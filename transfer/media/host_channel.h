#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "transfer/media/memory_greeting.h"
#include "transfer/media/socket_channel.h"

namespace tandem {

// The end that sends KV. The greeting is on its way; Establish waits for the answer.
class ConnectedHostChannel final : public SocketChannel {
 public:
  ConnectedHostChannel(UniqueFd socket, std::shared_ptr<SideChannel> side_channel)
      : SocketChannel(std::move(socket)), side_channel_(std::move(side_channel)) {}

  // FAILED_PRECONDITION when the peer would refuse again, UNAVAILABLE when a later attempt may
  // succeed.
  absl::StatusOr<bool> Establish() override;
  SideChannel* side_channel() override { return side_channel_.get(); }

 private:
  const std::shared_ptr<SideChannel> side_channel_;
  std::array<std::byte, kMemoryAnswerBytes> answer_{};
  size_t answer_count_ = 0;
};

// Opens the memory that a peer shares. `files` are all that came with the greeting. Errors as
// Device::OpenShared; RESOURCE_EXHAUSTED and UNAVAILABLE say that a later attempt may succeed. May
// take milliseconds.
using OpenMemory = std::function<absl::StatusOr<std::unique_ptr<SideChannel>>(
    const MemoryGreeting& greeting, std::vector<UniqueFd> files)>;

// The end that receives KV. It opens the memory that the greeting describes and closes it in its
// destructor.
class AcceptedHostChannel final : public SocketChannel {
 public:
  AcceptedHostChannel(UniqueFd socket, OpenMemory open_memory)
      : SocketChannel(std::move(socket)), open_memory_(std::move(open_memory)) {}

  // The call that completes the greeting takes as long as OpenMemory. UNAVAILABLE when
  // this side has no room for the memory.
  absl::StatusOr<bool> Establish() override;
  SideChannel* side_channel() override { return side_channel_.get(); }

 private:
  absl::StatusOr<bool> ReceiveGreeting();
  absl::Status TakeMemory();

  const OpenMemory open_memory_;
  std::array<std::byte, kMemoryGreetingBytes> greeting_{};
  size_t greeting_count_ = 0;
  std::vector<UniqueFd> files_;  // of the greeting
  std::unique_ptr<SideChannel> side_channel_;
};

}  // namespace tandem
