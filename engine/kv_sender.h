#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "base/clock.h"
#include "engine/inbox.h"
#include "engine/output_stream.h"
#include "engine/sequence.h"
#include "kvstore/kv_store.h"
#include "transfer/transport.h"

namespace tandem {

// The sending half of hand-offs: posts the KV of each sequence that has a target, layer by layer,
// while it is computed. Its state machine lies in the sequence (OutgoingKv); how a stream ended
// comes back through the inbox. Between Open and Abort or Ended the blocks are read by the
// transport: they must neither be written nor given back.
// Thread: engine. What it is made of must outlive it and the transport's streams.
class KvSender {
 public:
  KvSender(const KvStore& store, const Clock& clock, Inbox& inbox)
      : store_(store), clock_(clock), inbox_(inbox) {}

  void Attach(Transport* transport) { transport_ = transport; }

  // Opens the stream of a sequence whose first chunk is about to be computed, behind
  // `cached_tokens` whose KV is in its table already: posts the full blocks of these.
  void Open(Sequence& sequence, int32_t cached_tokens);
  // `layer` of the step's chunks is in the pool: posts each block that is now full, or the last of
  // its prompt. A block is posted once per layer.
  void PostLayer(int32_t layer, std::span<const Chunk> chunks);
  // All chunks were computed and posted: asks the peer to acknowledge.
  absl::Status Commit(RequestState& request);
  // Stops sending, in whatever state. Afterwards nothing reads the blocks any more.
  void Abort(RequestState& request);
  // The transport reported the end of the stream: OK when the peer has it all.
  absl::Status Ended(RequestState& request, const StreamEndedMessage& message);

  // What was sent for a sequence that was acknowledged at `acknowledged`.
  KvReport Report(const RequestState& request, TimePoint acknowledged) const;

  // The engine thread's time spent here, in all.
  Duration time_spent() const { return time_spent_; }
  int32_t num_open() const { return num_open_; }

 private:
  absl::Status OpenStream(Sequence& sequence);
  absl::Status PostCached(Sequence& sequence, int32_t cached_tokens);
  absl::Status PostChunk(int32_t layer, const Chunk& chunk);
  // Blocks [first, last) of the sequence that the peer has not.
  absl::Status PostBlocks(int32_t layer, Sequence& sequence, int32_t first, int32_t last);

  const KvStore& store_;
  const Clock& clock_;
  Inbox& inbox_;
  Transport* transport_ = nullptr;
  Duration time_spent_{};
  int32_t num_open_ = 0;
};

}  // namespace tandem
