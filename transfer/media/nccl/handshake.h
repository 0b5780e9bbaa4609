#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "transfer/media/nccl/communicator.h"
#include "transfer/media/nccl/context.h"
#include "transfer/media/nccl/setup.h"
#include "transfer/media/socket_channel.h"

namespace tandem {

// Makes a communicator between the two sides of a connected socket. The accepting side has rank 0 and
// makes the id, the connecting side has rank 1. Messages that a side receives
// are in parentheses (transfer/media/nccl/setup.h):
//   connecting: sends hello; (id) begins the communicator; sends ready when it has it; (ready) done
//   accepting: (hello) takes a slot, sends id, begins the communicator; ready and (ready) likewise
// A side that cannot go on sends one refusal, with the reason.
// Thread: the loop's. No call waits.
class NcclHandshake {
 public:
  // `context` and `socket` outlive the handshake.
  NcclHandshake(NcclContext& context, SocketChannel& socket, ChannelSide side);
  // Gives the reaper a communicator that was begun and that nobody took.
  ~NcclHandshake();

  // Continues the handshake. Returns true once both sides have the communicator.
  // FAILED_PRECONDITION names both values when the sides differ in version or size; other errors,
  // and the end of init_timeout, are UNAVAILABLE.
  absl::StatusOr<bool> Advance();
  // The finished connection; to be called once after Advance returned true. On the accepting side
  // the connection has a slot.
  NcclConnection TakeConnection() { return std::move(connection_); }
  uint64_t epoch() const { return epoch_; }

 private:
  absl::StatusOr<bool> TryAdvance();
  absl::Status ReadMessages();
  absl::Status Handle(const NcclSetup& message);
  absl::Status OnHello(const NcclSetup& hello);
  absl::Status OnId(const NcclSetup& message);
  absl::Status OnReady(const NcclSetup& message);
  absl::Status Refusal(const NcclSetup& message) const;
  absl::Status CheckVersion(const NcclSetup& message) const;
  absl::Status BeginCommunicator(const ncclUniqueId& id);
  absl::Status PollCommunicator();
  void Say(const NcclSetup& message);
  absl::Status Flush();

  NcclContext& context_;
  SocketChannel& socket_;
  const ChannelSide side_;
  const TimePoint deadline_;

  std::array<std::byte, kNcclSetupBytes> incoming_{};
  size_t incoming_bytes_ = 0;
  std::string outgoing_;  // messages that the socket has not taken yet
  NcclConnection connection_;
  uint64_t epoch_ = 0;  // 0 before there is an id
  bool ready_ = false;
  bool peer_ready_ = false;
};

}  // namespace tandem
