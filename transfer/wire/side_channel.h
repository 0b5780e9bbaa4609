#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// A payload that is to reach the other side of a channel.
struct OfferedPayload {
  std::span<const std::byte> bytes;
  uint64_t hash = 0;    // XXH3-64 of the bytes; set by Offer
  uint64_t handle = 0;  // by which Find on the other side finds the payload; set by Offer
};

// The side channel of a connection: moves payloads beside its bytes. The receiver reads a payload
// where it lies (memory that the sender shares), where the sender copied it to (such memory as well),
// or where the device put it (NCCL). Frames name payloads by their handles instead of carrying
// them (kReference). Payloads go in one direction, so each side implements one half of this class and
// leaves the other half as it is here.
// Thread: the loop's. No call waits for the peer; some wait for the device to do this side's work.
class SideChannel {
 public:
  virtual ~SideChannel() = default;

  // The sending half.

  // How many payloads and bytes one Offer takes now: at least one payload if there is any room. If
  // there is none, credit of the peer or an event on the channel's fd() says when to ask again.
  // `in_flight`: the number of bytes of the latest payloads that the peer has not consumed yet, by
  // its credit. It does not read the payloads before these any more.
  struct Room {
    size_t payloads = 0;
    size_t bytes = 0;
    // An Offer of this many bytes is best made without waiting for more payloads: the other side
    // then works on it while this side works on the next.
    size_t enough_bytes = SIZE_MAX;
    bool peer_holds_it = false;  // there is no room because the peer frees none
  };
  virtual Room room(uint64_t /*in_flight*/) { return {}; }
  // Makes the payloads reachable for the peer and fills in their hashes and handles. Waits for the
  // device. Returns the number of bytes to announce to Expect on the other side before the first of
  // them is named; 0 when nothing has to be announced. An error ends the connection.
  virtual absl::StatusOr<uint32_t> Offer(std::span<OfferedPayload> payloads);
  // Whether Offer copies the payloads: then all of them must be named. Otherwise the peer may read
  // them where they lie even after their stream was aborted, and whatever changed meanwhile fails the
  // frame's hash.
  virtual bool keeps_copies() const { return false; }
  // Whether a payload is on its way that the side channel watches over until a deadline of its own.
  // The peer may have nothing to answer before that.
  virtual bool sending() const { return false; }

  // The receiving half.

  // The peer announces an operation of `bytes`, whose payloads the next frames name. The payloads of
  // the operation before are not needed any more. An error ends the connection: INVALID_ARGUMENT for
  // something that no correct peer announces.
  virtual absl::Status Expect(uint32_t bytes);
  // Whether what was announced is still on its way. Until it has come, nothing is read from the
  // channel; an event on the channel's fd() reports it.
  virtual bool arriving() const { return false; }
  // Where the payload lies, in memory that the device reaches (Stream::CopyAll). INVALID_ARGUMENT
  // for a handle that the peer cannot have given out: the connection is closed.
  virtual absl::StatusOr<std::span<const std::byte>> Find(uint64_t handle, size_t bytes) const;
};

}  // namespace tandem
