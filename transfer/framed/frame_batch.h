#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "transfer/framed/slot_pool.h"
#include "transfer/wire/frame.h"

namespace tandem {

// A frame on its way into a channel.
struct OutFrame {
  FrameHeader fields;
  std::array<std::byte, kFrameHeaderBytes> header{};
  std::span<const std::byte> payload;  // the bytes that follow the header in the channel
  MemorySlot slot;                     // holds `payload` if the caller's lies in a device
  std::vector<std::byte> owned;        // holds `payload` once its stream was dropped half-way
  size_t sent = 0;                     // bytes of header and payload that the channel took

  size_t left() const { return header.size() + payload.size() - sent; }
  // The size of the frame's payload, whether that travels in the channel or beside it.
  size_t payload_bytes() const { return BringsPayload(fields) ? fields.payload_bytes : 0; }
};

// The frames that a connection writes next, hashed and encoded. Only the first may be half-sent.
// Thread: the loop's.
class FrameBatch {
 public:
  static constexpr size_t kMaxParts = 1024;  // the most parts of one write

  bool empty() const { return frames_.empty(); }
  size_t size() const { return frames_.size(); }
  size_t bytes() const { return bytes_; }  // bytes that the channel is still to take
  size_t num_slots() const;
  OutFrame& at(size_t i) { return frames_[i]; }

  // Appends a frame, which is still to be encoded.
  void Add(const FrameHeader& fields, std::span<const std::byte> payload = {},
           MemorySlot slot = MemorySlot());
  // Puts an announcement of `bytes` before the first payload, and so behind a hello.
  void Announce(uint32_t bytes);
  // Encodes the frames from `first` on.
  void Encode(size_t first);

  // Removes those data frames of the stream of which no byte was sent, and returns their payload
  // bytes. A half-sent frame stays, so that other streams go on; if its payload is the caller's,
  // the rest is sent from a copy.
  uint64_t Drop(StreamKey key);

  // Fills `parts` with what to write next, and returns those that it filled.
  std::span<iovec> Parts(std::span<iovec, kMaxParts> parts) const;
  struct Sent {
    size_t bytes = 0;          // including payloads that travel beside the channel
    bool is_progress = false;  // something other than renewals went out
  };
  // Notes that the channel took `count` bytes, and removes the frames that have gone out.
  Sent TakeSent(size_t count);

 private:
  void CountPayload();

  std::deque<OutFrame> frames_;
  size_t bytes_ = 0;
  uint64_t sent_payload_ = 0;  // payload bytes of the frames that have left the batch
};

}  // namespace tandem
