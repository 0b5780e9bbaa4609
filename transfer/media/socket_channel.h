#pragma once

#include "base/unique_fd.h"
#include "transfer/wire/byte_channel.h"

namespace tandem {

// Accepts a connection that a peer has made to `listener`. The socket is non-blocking, and not
// valid() when no peer waits. RESOURCE_EXHAUSTED when the process or the system has no room for
// another.
absl::StatusOr<UniqueFd> AcceptSocket(int listener);

// The number of peers that may wait for a listener to accept them.
inline constexpr int kListenBacklog = 128;

// A connected stream socket whose bytes travel unchanged.
class SocketChannel : public ByteChannel {
 public:
  explicit SocketChannel(UniqueFd socket) : socket_(std::move(socket)) {}

  int fd() const override { return socket_.get(); }
  bool wants_output() const override { return full_; }
  absl::StatusOr<bool> Establish() override { return true; }
  absl::StatusOr<size_t> Read(std::span<const iovec> parts) override;
  // About as much as the receive buffer of a socket holds.
  size_t read_ahead_bytes() const override { return 256 << 10; }
  absl::StatusOr<size_t> Write(std::span<const iovec> parts) override;

 private:
  const UniqueFd socket_;
  bool full_ = false;  // the socket took less than the latest write offered
};

}  // namespace tandem
