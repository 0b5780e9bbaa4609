#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "engine/handoff/codec_workers.h"
#include "engine/handoff/kv_dumper.h"
#include "engine/handoff/kv_encoder.h"
#include "engine/handoff/outgoing_kv.h"
#include "engine/inbox.h"
#include "engine/output_stream.h"
#include "engine/sequence.h"
#include "kvstore/kv_store.h"
#include "transfer/transport.h"

namespace tandem {

// The sending half of hand-offs: posts the KV of each sequence that has a target, layer by layer,
// while it is computed. The state of each hand-off (engine/handoff/states.h, docs/hand_off.md) is
// in the request's OutgoingKv; the transport reports the end of a stream through the inbox. A
// stream that was lost is opened again, a few times per request, and all KV is posted again. Until
// the state is kEnded the transport reads the blocks, so they must be neither written nor freed.
// Thread: engine. Everything that the constructor takes must outlive this object and the
// transport's streams.
class KvSender {
 public:
  // What encodes KV before it is sent (`encoder` and `workers`, both null where KV is never
  // encoded), and what writes it to files (`dumper`, null where none are written).
  struct Encoding {
    KvEncoder* encoder = nullptr;
    CodecWorkers* workers = nullptr;
    KvDumper* dumper = nullptr;
  };
  // `least_post_bytes`: EngineOptions::least_post_bytes.
  KvSender(const KvStore& store, const Clock& clock, Inbox& inbox, const Encoding& encoding,
           int64_t least_post_bytes)
      : store_(store),
        clock_(clock),
        inbox_(inbox),
        encoding_(encoding),
        least_post_bytes_(least_post_bytes) {}

  void Attach(Transport* transport) { transport_ = transport; }

  // Opens the stream of a request when it arrives. From then on the transport renews the lease of
  // the reservation, however long the request waits. A failure is in the result's `error`.
  OutgoingKv Open(const EngineRequest& request, HandoffTarget target);
  // The first chunk of the sequence is about to be computed. The KV of the first `cached_tokens`
  // tokens is in its block table already: posts the full blocks of those tokens.
  void Begin(Sequence& sequence, int32_t cached_tokens);
  // The KV of `layer` of the step's chunks is in the pool: posts each block that is full or the
  // last of its prompt. KV of few bytes is kept for the post of a later layer. If all layers of the
  // last chunk have few bytes, they are kept for the commit, so that the first token does not wait
  // for them. A block is posted once per layer and stream.
  void PostLayer(int32_t layer, std::span<const Chunk> chunks);
  // The sequence has evicted KV at the end of its prompt: posts the KV that it kept. PostLayer
  // posts nothing of such a sequence.
  absl::Status PostKept(Sequence& sequence);
  // All chunks were computed, and the first token is emitted: posts the KV that was held back and
  // asks the peer to acknowledge.
  absl::Status Commit(Sequence& root);
  // Stops sending, whatever the state. Afterwards the transport does not read the blocks any more.
  void Abort(OutgoingKv& outgoing);

  // The transport reported the end of a stream. OK when the peer has all KV, an error when the
  // hand-off has failed, nothing when it continues: the stream will be opened again, or this was
  // not the latest stream of the request.
  std::optional<absl::Status> Ended(RequestState& request, const StreamEndedMessage& message);
  // The requests with a lost stream whose pause is over, to be passed to Reopen. Some of them may
  // have ended meanwhile.
  std::vector<RequestId> TakeDue(TimePoint now);
  TimePoint NextReopen() const;
  // Opens a lost stream again and posts all KV that is ready. Does nothing for a stream that is not
  // lost. An error ends the hand-off.
  absl::Status Reopen(Sequence& root, TimePoint now);

  // What was sent for a request, whose KV the peer acknowledged at `acknowledged`.
  KvReport Report(const RequestState& request, TimePoint acknowledged) const;

  // The total time that the engine thread has spent in this class.
  Duration time_spent() const { return time_spent_; }
  int32_t num_open() const { return num_open_; }
  uint64_t num_reopened() const { return num_reopened_; }

 private:
  struct Pause {
    TimePoint until;
    RequestId id;
  };

  absl::Status OpenStream(const EngineRequest& request, OutgoingKv& outgoing);
  absl::Status PostReady(Sequence& sequence);
  absl::Status PostChunk(int32_t layer, const Chunk& chunk);
  int32_t LayersPerPost(int32_t blocks) const;
  // The next layer after `layer` at which PostChunk has something to do.
  int32_t NextPost(int32_t layer, const Chunk& chunk) const;
  // Posts layers [first_layer, last_layer) of the sequence's blocks [first, last), except for the
  // blocks that the peer has cached.
  absl::Status PostBlocks(int32_t first_layer, int32_t last_layer, Sequence& sequence,
                          int32_t first, int32_t last);
  absl::Status PostRest(Sequence& root);
  absl::Status FinishStream(OutgoingKv& outgoing);
  void End(OutgoingKv& outgoing, SendEvent event);
  void Learn(const OutgoingKv& outgoing, TimePoint acknowledged);

  const KvStore& store_;
  const Clock& clock_;
  Inbox& inbox_;
  const Encoding encoding_;
  const int64_t least_post_bytes_;
  Transport* transport_ = nullptr;
  Duration time_spent_{};
  int32_t num_open_ = 0;  // streams that are neither closed nor ended
  uint64_t num_reopened_ = 0;
  uint64_t last_attempt_ = 0;
  std::vector<Pause> pauses_;          // one for each lost stream
  std::vector<PostedExtent> extents_;  // the post that is being built; a member to reuse its memory
  int32_t next_layer_ = 0;             // first layer of this step at which a chunk posts again
};

}  // namespace tandem
