#pragma once

#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "transfer/host_address.h"

namespace tandem {

// How a medium that works within one host meets others of its kind: sockets of processes of the
// same host and network namespace. Who belongs to another user is found out here on the connecting
// side (PeerIsSameUser is for the other).
// Thread: the loop's, but for address() and MayReach, which are constant.
class HostListener {
 public:
  // UNAVAILABLE when it cannot listen.
  static absl::StatusOr<HostListener> Open();

  const HostAddress& address() const { return address_; }
  int fd() const { return socket_.get(); }
  // As Medium's.
  absl::Status MayReach(std::string_view peer) const;

  // Not valid when nobody waits. RESOURCE_EXHAUSTED when the process has no room.
  absl::StatusOr<UniqueFd> Accept();
  // Connected. UNAVAILABLE when nobody listens there, FAILED_PRECONDITION when it is another user.
  absl::StatusOr<UniqueFd> Connect(std::string_view peer) const;

 private:
  HostListener(HostAddress address, UniqueFd socket)
      : address_(std::move(address)), socket_(std::move(socket)) {}

  HostAddress address_;
  UniqueFd socket_;
};

}  // namespace tandem
