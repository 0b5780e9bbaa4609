#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace tandem {

// Wakes the other end of a connection and is woken by it, with one eventfd for each end. Bytes on
// the connection's socket would not do: the kernel assumes that a process that writes to a unix
// socket is about to sleep, and wakes the reader on the writer's core, where the two copy in turns
// instead of side by side.
// Thread: its owner's.
class Doorbell {
 public:
  // `own` becomes readable when the peer rings; this end rings `peers`.
  Doorbell(UniqueFd own, UniqueFd peers) : own_(std::move(own)), peers_(std::move(peers)) {}

  // Makes descriptors that a peer has sent non-blocking, whatever they are. FAILED_PRECONDITION when
  // that fails.
  absl::Status NeverBlock();
  // Wakes the peer.
  void Ring();
  // Makes the own descriptor readable again.
  void RingOwn();
  // How often the peer rang since the previous call. FAILED_PRECONDITION when the peer's descriptor
  // is not an eventfd.
  absl::StatusOr<uint64_t> Take();

  int fd() const { return own_.get(); }

 private:
  UniqueFd own_;
  UniqueFd peers_;
};

// Makes an eventfd. RESOURCE_EXHAUSTED when the process has no descriptor left.
absl::StatusOr<UniqueFd> NewDoorbell();

// Makes an epoll descriptor, which is readable while one of the descriptors that it watches is.
// RESOURCE_EXHAUSTED as above.
absl::StatusOr<UniqueFd> NewWatch(int descriptor);
absl::Status AddToWatch(const UniqueFd& watch, int descriptor);

}  // namespace tandem
