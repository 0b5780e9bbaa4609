#pragma once

#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "transfer/media/host_address.h"

namespace tandem {

// Accepts and makes unix socket connections for a medium that works within one host and network
// namespace. Connect checks that the peer belongs to the same user; the accepting side calls
// PeerIsSameUser.
// Thread: the loop's, except for address() and MayReach, which are constant.
class HostListener {
 public:
  // UNAVAILABLE when it cannot listen.
  static absl::StatusOr<HostListener> Open();

  const HostAddress& address() const { return address_; }
  int fd() const { return socket_.get(); }
  // As Medium::MayReach.
  absl::Status MayReach(std::string_view peer) const;

  // An invalid descriptor when no peer waits. RESOURCE_EXHAUSTED when the process has no descriptor
  // or memory left.
  absl::StatusOr<UniqueFd> Accept();
  // A connected socket. UNAVAILABLE when no process listens there, FAILED_PRECONDITION when the
  // process belongs to another user.
  absl::StatusOr<UniqueFd> Connect(std::string_view peer) const;

 private:
  HostListener(HostAddress address, UniqueFd socket)
      : address_(std::move(address)), socket_(std::move(socket)) {}

  HostAddress address_;
  UniqueFd socket_;
};

}  // namespace tandem
