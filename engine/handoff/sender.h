#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "engine/handoff/outgoing_kv.h"
#include "engine/inbox.h"
#include "engine/output_stream.h"
#include "engine/sequence.h"
#include "kvstore/kv_store.h"
#include "transfer/transport.h"

namespace tandem {

// The sending half of hand-offs: posts the KV of each sequence that has a target, layer by layer,
// while it is computed. Its state machine (engine/handoff/states.h, docs/hand_off.md) lies in the
// request's OutgoingKv; how a stream ended comes back through the inbox. A stream that was lost is
// opened again, and all that was posted is posted again, a few times per request. Until the state
// is kEnded the blocks are read by the transport: they must neither be written nor given back.
// Thread: engine. What it is made of must outlive it and the transport's streams.
class KvSender {
 public:
  // `least_post_bytes`: see EngineOptions.
  KvSender(const KvStore& store, const Clock& clock, Inbox& inbox, int64_t least_post_bytes)
      : store_(store), clock_(clock), inbox_(inbox), least_post_bytes_(least_post_bytes) {}

  void Attach(Transport* transport) { transport_ = transport; }

  // Opens the stream of a request as it arrives: from here on the transport renews the lease of the
  // reservation, however long the request waits. What went wrong is in the result's `error`.
  OutgoingKv Open(RequestId id, HandoffTarget target);
  // The first chunk is about to be computed, behind `cached_tokens` whose KV is in the table
  // already: posts the full blocks of these.
  void Begin(Sequence& sequence, int32_t cached_tokens);
  // `layer` of the step's chunks is in the pool: posts each block that is now full, or the last of
  // its prompt, or keeps it for the post of a later layer if it is little, or for the commit if all
  // layers of the prompt's last chunk are: the first token does not wait for it then. A block is
  // posted once per layer and stream.
  void PostLayer(int32_t layer, std::span<const Chunk> chunks);
  // All chunks were computed, and the first token is on its way: posts what was kept and asks the
  // peer to acknowledge.
  absl::Status Commit(Sequence& root);
  // Stops sending, in whatever state. Afterwards nothing reads the blocks any more.
  void Abort(OutgoingKv& outgoing);

  // The transport reported the end of a stream. OK when the peer has it all, an error when the
  // hand-off is over, nothing when it goes on: it will be opened again, or this was not its latest
  // stream.
  std::optional<absl::Status> Ended(RequestState& request, const StreamEndedMessage& message);
  // Requests whose pause is over, to be passed to Reopen; among them such that have ended
  // meanwhile.
  std::vector<RequestId> TakeDue(TimePoint now);
  TimePoint NextReopen() const;
  // Opens a stream that was lost again and posts all that is ready, as far as that still is to be
  // done. An error ends the hand-off.
  absl::Status Reopen(Sequence& root, TimePoint now);

  // What was sent for a sequence that was acknowledged at `acknowledged`.
  KvReport Report(const RequestState& request, TimePoint acknowledged) const;

  // The engine thread's time spent here, in all.
  Duration time_spent() const { return time_spent_; }
  int32_t num_open() const { return num_open_; }
  uint64_t num_reopened() const { return num_reopened_; }

 private:
  struct Pause {
    TimePoint until;
    RequestId id;
  };

  absl::Status OpenStream(RequestId id, OutgoingKv& outgoing);
  absl::Status PostReady(Sequence& sequence);
  absl::Status PostChunk(int32_t layer, const Chunk& chunk);
  struct ChunkBlocks {
    int32_t first = 0;
    int32_t last = 0;
  };
  // Those that the chunk has filled, or ended the prompt in: [first, last).
  ChunkBlocks BlocksOf(const Chunk& chunk) const;
  int32_t LayersPerPost(int32_t blocks) const;
  // The next layer after `layer` at which PostChunk has something to do.
  int32_t NextPost(int32_t layer, const Chunk& chunk) const;
  // Of layers [first_layer, last_layer) those of the sequence's blocks [first, last) that the peer
  // has not.
  absl::Status PostBlocks(int32_t first_layer, int32_t last_layer, Sequence& sequence,
                          int32_t first, int32_t last);
  absl::Status PostRest(Sequence& root);
  absl::Status FinishStream(OutgoingKv& outgoing);
  void End(OutgoingKv& outgoing, SendEvent event);

  const KvStore& store_;
  const Clock& clock_;
  Inbox& inbox_;
  const int64_t least_post_bytes_;
  Transport* transport_ = nullptr;
  Duration time_spent_{};
  int32_t num_open_ = 0;  // neither closed nor ended
  uint64_t num_reopened_ = 0;
  uint64_t last_attempt_ = 0;
  std::vector<Pause> pauses_;          // of those that are lost
  std::vector<PostedExtent> extents_;  // of the post that is being made
  int32_t next_layer_ = 0;             // of the step: none of its chunks posts before
};

}  // namespace tandem
