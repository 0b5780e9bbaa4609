#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "transfer/framed/connection_table.h"
#include "transfer/transport.h"
#include "transfer/wire/byte_channel.h"
#include "transfer/wire/frame.h"

namespace tandem {

// The answers of a receiver that its channel has not taken yet.
// Thread: the loop's.
class ReplyBuffer {
 public:
  void Ack(StreamKey key, uint32_t commit);
  // Rejects a stream. `commit` is the number of the commit that this answers, 0 when it answers
  // none.
  void Reject(StreamKey key, uint32_t commit, absl::StatusCode code);
  void Credit(uint64_t bytes);
  // Asks for the first of the missing extents; the others are named by the answer to the next
  // commit.
  void Resend(StreamKey key, std::span<const MissingExtent> missing);

  // Writes what the channel takes. UNAVAILABLE when the peer leaves too much unread.
  absl::Status WriteTo(ByteChannel& channel, TransportCounters& counters);

 private:
  void Add(const FrameHeader& header);

  std::string bytes_;
};

}  // namespace tandem
