#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// A payload on its way to the other side of a channel.
struct LanePayload {
  std::span<const std::byte> bytes;
  uint64_t hash = 0;   // XXH3-64 of the bytes: set by Offer
  uint64_t place = 0;  // what Find wants on the other side: set by Offer
};

// What moves payloads beside the bytes of a channel: the receiver reads them where they lie (memory
// that the sender shares), where the sender copies them to (memory that both share), or where they
// come to lie (NCCL). The frames that go over the channel name their places instead of carrying
// them (kReference). Payloads go one way, so that each side has half of this to do and leaves the
// other as it is here.
// Thread: the loop's. No call waits for the peer; some wait for the device, on this side's work.
class PayloadLane {
 public:
  virtual ~PayloadLane() = default;

  // Sending.
  // How many payloads and bytes one Offer takes now, at least one payload where there is room at
  // all. None: an event on the channel's fd() says when to ask again.
  struct Room {
    size_t payloads = 0;
    size_t bytes = 0;
    // An Offer with as many bytes is best made at once: the other side then works on one while this
    // side works on the next.
    size_t enough_bytes = SIZE_MAX;
    bool peer_holds_it = false;  // it is the peer that makes none
  };
  virtual Room room() const { return {}; }
  // Makes the payloads reachable for the peer and fills in their hashes and places. Waits for the
  // device. Gives the number of bytes that Expect shall hear of on the other side before the first
  // of them is named (an announce frame); 0: nothing has to be announced. An error ends the
  // connection.
  virtual absl::StatusOr<uint32_t> Offer(std::span<LanePayload> payloads);
  // Whether Offer copies the payloads, and all that it was given have to be named. Else the peer
  // may read them where they lie even after they were taken back: what changes in them meanwhile
  // fails the frame's hash.
  virtual bool keeps_copies() const { return false; }
  // Whether something is on its way over which the lane watches by itself, until its deadline: the
  // peer may have nothing to answer before.
  virtual bool sending() const { return false; }

  // Receiving.
  // The peer announces an operation of `bytes`, whose payloads the frames after it name; the
  // payloads of the operation before are not needed any more. An error ends the connection:
  // INVALID_ARGUMENT for what no peer of ours would announce.
  virtual absl::Status Expect(uint32_t bytes);
  // Whether what was announced is still on its way: nothing is read from the channel until it has
  // come, of which an event on the channel's fd() tells.
  virtual bool arriving() const { return false; }
  // Where the payload lies, in memory that the device reaches (Stream::CopyAll). INVALID_ARGUMENT
  // where there is no such: the connection is closed.
  virtual absl::StatusOr<std::span<const std::byte>> Find(uint64_t place, size_t bytes) const;
  // The payload that was found there, and those that were named before it, are not read any more.
  virtual void Release(uint64_t /*place*/, size_t /*bytes*/) {}
};

}  // namespace tandem
