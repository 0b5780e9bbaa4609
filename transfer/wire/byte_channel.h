#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>

#include "absl/status/statusor.h"
#include "transfer/wire/side_channel.h"

namespace tandem {

// The bytes of one connection, in order, in both directions: a socket, or a socket with TLS.
// No call blocks. After an error the connection is
// over. The error is UNAVAILABLE with the system's message, or FAILED_PRECONDITION when the peer is
// not who it should be (TLS, another version, a malformed greeting): the accepting side counts an
// unauthenticated peer then.
// Thread: the loop's.
class ByteChannel {
 public:
  virtual ~ByteChannel() = default;

  // The descriptor that the loop watches: always for input, and for output while wants_output(). -1
  // while there is nothing to watch. When the descriptor changes, the new one has another number.
  virtual int fd() const = 0;
  virtual bool wants_output() const = 0;

  // Goes on with what precedes the first byte (name lookup, connecting, handshakes). True once bytes
  // can flow; called on every event until then.
  virtual absl::StatusOr<bool> Establish() = 0;

  // Fills `parts` in order with bytes that have come, and returns how many: 0 when there are none for
  // now. The peer's orderly end is UNAVAILABLE as well, once all that it had sent was read. Only a
  // Read that returned 0 is sure to be followed by an event, because TLS may hold plain text of
  // which the descriptor knows nothing. So a loop that stops reading earlier must come
  // back by itself.
  virtual absl::StatusOr<size_t> Read(std::span<const iovec> parts) = 0;
  // Not 0 where each Read is a system call, so that fewer and larger ones are better: asking for so
  // many bytes more than have a place yet costs less than asking again. Moreover, the descriptor of
  // such a channel stays readable while anything is left, so a Read that returned less than was asked
  // for need not be followed by another.
  virtual size_t read_ahead_bytes() const { return 0; }
  // Takes bytes of `parts` in order, and returns how many: 0 when it can take none for now. Then an
  // event on fd(), for input or for output, says when to try again. On an event while wants_output()
  // it is called even without parts, because a channel may still hold bytes that it took.
  virtual absl::StatusOr<size_t> Write(std::span<const iovec> parts) = 0;

  // The side channel that moves payloads beside the bytes, once established; null where payloads are
  // among the bytes. Both sides have one or neither has, as the medium's has_side_channels() says.
  virtual SideChannel* side_channel() { return nullptr; }
};

}  // namespace tandem
