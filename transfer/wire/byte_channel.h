#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "base/status.h"

namespace tandem {

// A payload that is to reach the other side of a channel.
struct OfferedPayload {
  std::span<const std::byte> bytes;
  uint64_t hash = 0;    // XXH3-64 of the bytes; set by Offer
  uint64_t handle = 0;  // names the payload in Find on the other side; set by Offer
};

// The side channel of a connection: moves payloads beside its bytes, through memory that the sender
// shares or by the device (NCCL). Frames name payloads by their handles instead of carrying them
// (kReference). Payloads go in one direction, so each side implements one half of this class and
// leaves the other half as it is here.
// Thread: the loop's. No call waits for the peer; some wait for the device to do this side's work.
class SideChannel {
 public:
  virtual ~SideChannel() = default;

  // What the sending side of a side channel implements.

  // How many payloads and bytes one Offer takes now: at least one payload if there is any room. If
  // there is none, credit of the peer or an event on the channel's fd() says when to ask again.
  // `in_flight`: the number of bytes of the latest payloads that the peer has not consumed yet, as
  // its credit says. It has finished reading all payloads before those.
  struct Room {
    size_t payloads = 0;
    size_t bytes = 0;
    // The number of bytes from which on an Offer is best made without waiting for more payloads:
    // the other side then works on it while this side works on the next Offer.
    size_t enough_bytes = SIZE_MAX;
    bool peer_holds_it = false;  // there is no room because the peer frees none
  };
  virtual Room room(uint64_t /*in_flight*/) { return {}; }
  // Makes the payloads reachable for the peer and fills in their hashes and handles. Waits for the
  // device. Returns the number of bytes to announce to Expect on the other side before the first of
  // them is named; 0 when nothing has to be announced. An error ends the connection.
  virtual absl::StatusOr<uint32_t> Offer(std::span<OfferedPayload> payloads) {
    return Internal("{} payloads offered by a side that does not send", payloads.size());
  }
  // Whether Offer copies the payloads: then frames must name all of them. Otherwise the peer may
  // read them where they lie even after their stream was aborted, and whatever changed meanwhile
  // fails the frame's hash.
  virtual bool keeps_copies() const { return false; }
  // Whether a payload is on its way for which the side channel has a deadline of its own. Until the
  // payload has arrived, the peer may have nothing to answer.
  virtual bool sending() const { return false; }

  // What the receiving side of a side channel implements.

  // The peer announces an operation of `bytes`, whose payloads the next frames name. The payloads
  // of the operation before are not needed any more. An error ends the connection: INVALID_ARGUMENT
  // for something that no correct peer announces.
  virtual absl::Status Expect(uint32_t bytes) {
    return InvalidArgument("{} bytes announced where nothing has to be", bytes);
  }
  // Whether the announced operation is still on its way. Until it has arrived, nothing is read from
  // the channel; an event on the channel's fd() reports its arrival.
  virtual bool arriving() { return false; }
  // Where the payload lies, in memory that the device reaches (Stream::CopyAll). INVALID_ARGUMENT
  // for a handle that the peer cannot have given out: the connection is closed.
  virtual absl::StatusOr<std::span<const std::byte>> Find(uint64_t handle, size_t bytes) const {
    return InvalidArgument("a payload of {} bytes at {} for a side that does not receive", bytes,
                           handle);
  }
};

// Which end of a connection this side has. The connecting end sends KV, the accepting end receives
// it.
enum class ChannelSide : uint8_t { kConnected, kAccepted };

// The bytes of one connection, in order, in both directions: a socket, or a socket with TLS.
// No call blocks. After an error the connection is over. The error is UNAVAILABLE with the system's
// message, or FAILED_PRECONDITION when the peer is not who it should be (TLS, another version, a
// malformed greeting): the accepting side counts an unauthenticated peer then.
// Thread: the loop's.
class ByteChannel {
 public:
  virtual ~ByteChannel() = default;

  // The descriptor that the loop watches: always for input, and for output while wants_output(). -1
  // while there is nothing to watch. When the descriptor changes, the new one has another number.
  virtual int fd() const = 0;
  virtual bool wants_output() const = 0;

  // Continues with what precedes the first byte (name lookup, connecting, handshakes). True once
  // bytes can flow; called on every event until then.
  virtual absl::StatusOr<bool> Establish() = 0;

  // Fills `parts` in order with bytes that have come, and returns how many: 0 when there are none
  // for now. The peer's orderly end is UNAVAILABLE as well, once all that it had sent was read.
  // Only a Read that returned 0 is sure to be followed by an event, because TLS may hold plain text
  // of which the descriptor knows nothing. So a loop that stops reading earlier must come back by
  // itself.
  virtual absl::StatusOr<size_t> Read(std::span<const iovec> parts) = 0;
  // How many bytes a Read should ask for beyond those that have a place already. Not 0 for a
  // channel whose every Read is a system call, so that fewer and larger ones are better. The
  // descriptor of such a channel stays readable while anything is left, so a Read that returned
  // less than was asked for need not be followed by another.
  virtual size_t read_ahead_bytes() const { return 0; }
  // Takes bytes of `parts` in order, and returns how many: 0 when it can take none for now. Then an
  // event on fd(), for input or for output, says when to try again. On an event while
  // wants_output() it is called even without parts, because a channel may still hold bytes that it
  // took.
  virtual absl::StatusOr<size_t> Write(std::span<const iovec> parts) = 0;

  // The side channel that moves payloads beside the bytes, once the connection is established; null
  // where payloads are among the bytes. Both sides have one or neither has, as the medium's
  // has_side_channels() says.
  virtual SideChannel* side_channel() { return nullptr; }
};

}  // namespace tandem
