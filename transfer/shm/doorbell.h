#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace tandem {

// How one end of a connection wakes the other and is woken: an eventfd for each. Not bytes on the
// connection's socket: the kernel takes who writes to a unix socket for one that is about to sleep
// and puts the reader on the writer's core, where the two copy in turns instead of side by side.
// Thread: its owner's.
class Doorbell {
 public:
  // `own` becomes readable when the peer rings, `peers` is what this end rings.
  Doorbell(UniqueFd own, UniqueFd peers) : own_(std::move(own)), peers_(std::move(peers)) {}

  // For descriptors that a peer gave: whatever they are, no call waits for them.
  // FAILED_PRECONDITION when that cannot be.
  absl::Status NeverBlock();
  // Wakes the peer.
  void Ring();
  // Makes own readable again.
  void RingOwn();
  // How often the peer rang since the last call. FAILED_PRECONDITION when it gave something that
  // is no doorbell.
  absl::StatusOr<uint64_t> Take();

  int fd() const { return own_.get(); }

 private:
  UniqueFd own_;
  UniqueFd peers_;
};

// A new eventfd. RESOURCE_EXHAUSTED when the process has no descriptor left.
absl::StatusOr<UniqueFd> NewDoorbell();

// Readable while one of those that it watches is. RESOURCE_EXHAUSTED as above.
absl::StatusOr<UniqueFd> NewWatch(int descriptor);
absl::Status AddToWatch(const UniqueFd& watch, int descriptor);

}  // namespace tandem
