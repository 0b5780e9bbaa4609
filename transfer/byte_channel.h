#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "transfer/payload_lane.h"

namespace tandem {

// The bytes of one connection, in order, both ways: what frames travel over. A socket, a socket
// with TLS, or a ring of shared memory with a socket to wake the other side. No call blocks. An
// error means that the connection is over: UNAVAILABLE with the system's message, or
// FAILED_PRECONDITION when the peer is not who it should be (TLS, another version, a greeting that
// is none): whoever accepted it counts a stranger.
// Thread: the loop's.
class ByteChannel {
 public:
  virtual ~ByteChannel() = default;

  // What the loop watches: for input always, for output while wants_output(). -1 while there is
  // nothing to watch. When it changes, the new one has another number than the one before.
  virtual int fd() const = 0;
  virtual bool wants_output() const = 0;

  // Goes on with what comes before the first byte (looking up a name, connecting, a handshake);
  // true once bytes can flow. Called on every event until then.
  virtual absl::StatusOr<bool> Establish() = 0;

  // Fills `parts` in order with what has come; how many bytes, 0 when there are none for now. The
  // peer's orderly end is UNAVAILABLE too, once all that it sent before was read. Only a Read that
  // returned 0 is sure to be followed by an event: TLS may hold plain text and a ring bytes of
  // which the descriptor knows nothing, so a loop whose turn is over before comes back by itself.
  virtual absl::StatusOr<size_t> Read(std::span<const iovec> parts) = 0;
  // Not 0 where each Read is a call of the system: then fewer and larger ones are better, and
  // asking for so many bytes more than have a place yet costs less than asking again. Besides, its
  // descriptor stays readable while anything is left, so a Read that returned less than was asked
  // for need not be followed by another.
  virtual size_t read_ahead_bytes() const { return 0; }
  // Takes bytes of `parts` in order; how many, 0 when it can take none for now: then an event on
  // fd(), for input or for output, says when to try again. On an event while wants_output() it is
  // called even with no parts: a channel may hold bytes that it took, and wants no output any more
  // once they are gone.
  // A channel that sends without a copy may read `parts` after it returned, until the peer's
  // machine has them: their memory must stay mapped as long as the channel lives, and what changes
  // in it meanwhile fails the frame's hash.
  virtual absl::StatusOr<size_t> Write(std::span<const iovec> parts) = 0;
  // How many of the bytes that Write took last may still be read where they were. When that
  // changes, an event on fd() says so.
  virtual size_t held_bytes() const { return 0; }
  // Of a channel that may send without a copy.
  struct ZeroCopyUse {
    uint64_t writes = 0;       // that the system was handed without a copy, so far
    std::string_view gave_up;  // why it copies from now on; empty: it does not
  };
  virtual ZeroCopyUse zero_copy() const { return {}; }

  // Once established, what moves payloads beside the bytes; null: they are among the bytes. On both
  // sides or on neither, as the medium's has_lanes().
  virtual PayloadLane* lane() { return nullptr; }
};

}  // namespace tandem
