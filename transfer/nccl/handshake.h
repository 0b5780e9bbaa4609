#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "transfer/nccl/communicator.h"
#include "transfer/nccl/context.h"
#include "transfer/nccl/setup.h"
#include "transfer/socket_channel.h"

namespace tandem {

enum class NcclSide : uint8_t {
  kAccepted,   // receives KV: rank 0, makes the id
  kConnected,  // sends KV: rank 1
};

// From a connected socket to a communicator that both sides have (transfer/nccl/setup.h has the
// messages):
//   connector: hello -> (id) begins to make the communicator -> ready -> (ready) done
//   acceptor: (hello) takes a slot, id, begins to make it -> ready -> (ready) done
// Whoever cannot go on says why, once.
// Thread: the loop's. No call waits.
class NcclHandshake {
 public:
  // `context` and `socket` outlive it.
  NcclHandshake(NcclContext& context, SocketChannel& socket, NcclSide side);
  // Of a communicator that was begun and not taken: to the reaper.
  ~NcclHandshake();

  // True once it is done. FAILED_PRECONDITION where the two have other versions or sizes, with both
  // values; UNAVAILABLE otherwise, also when init_timeout is over.
  absl::StatusOr<bool> Advance();
  // Then, once. It has a slot where this side accepted.
  NcclConnection TakeConnection() { return std::move(connection_); }
  uint64_t epoch() const { return epoch_; }

 private:
  absl::StatusOr<bool> TryAdvance();
  absl::Status ReadMessages();
  // None when no whole message has come.
  absl::StatusOr<std::optional<NcclSetup>> Next();
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
  const NcclSide side_;
  const TimePoint deadline_;

  std::array<std::byte, kNcclSetupBytes> incoming_{};
  size_t incoming_bytes_ = 0;
  std::string outgoing_;  // not taken by the socket yet
  NcclConnection connection_;
  uint64_t epoch_ = 0;  // 0: no id yet
  bool ready_ = false;
  bool peer_ready_ = false;
};

}  // namespace tandem
