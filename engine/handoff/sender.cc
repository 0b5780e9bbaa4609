#include "engine/handoff/sender.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/status.h"

namespace tandem {
namespace {

// The pauses before the first, second and third attempt to reopen a lost stream. A peer that
// dropped one connection accepts another at once, a busy peer accepts one soon, and a peer that is
// gone never does.
constexpr std::chrono::milliseconds kPauses[] = {
    std::chrono::milliseconds(0), std::chrono::milliseconds(50), std::chrono::milliseconds(200)};
// How often a lease is renewed in its time: it outlives several renewals that come late.
constexpr int kRenewalsPerLease = 6;

bool HasStream(const OutgoingKv& outgoing) {
  return outgoing.state == SendState::kStreaming || outgoing.state == SendState::kCommitted;
}

bool MayReopen(const OutgoingKv& outgoing, const absl::Status& status) {
  return (absl::IsUnavailable(status) || absl::IsDataLoss(status)) &&
         outgoing.reopened < std::ssize(kPauses);
}

// How many tokens of the prompt are sent: those that eviction leaves, if the peer has reserved room
// for just these; otherwise all.
int32_t TokensToSend(const EngineRequest& request, const HandoffTarget& target) {
  const int32_t stored = StoredTokens(request.prompt.size(), request.eviction);
  return target.stored_tokens == stored ? stored : static_cast<int32_t>(request.prompt.size());
}

struct ChunkBlocks {
  int32_t first = 0;
  int32_t last = 0;
};

// The blocks that a chunk of a prompt completes: those that it fills, and the last one when the
// prompt ends in the chunk: [first, last). The block that `begin` lies in was not full before, so
// it was not posted.
ChunkBlocks BlocksOf(const KvLayout& layout, const Chunk& chunk) {
  return {.first = chunk.begin / layout.block_tokens,
          .last = chunk.samples > 0 ? layout.BlocksFor(chunk.end())
                                    : chunk.end() / layout.block_tokens};
}

// Counts extents that were posted unencoded, of a prompt of which `sent_tokens` are sent.
void CountRaw(const KvLayout& layout, int32_t sent_tokens, std::span<const PostedExtent> extents,
              PostedKv& posted) {
  std::vector<ExtentParts> parts;
  for (const PostedExtent& extent : extents) {
    const int32_t first = static_cast<int32_t>(extent.block) * layout.block_tokens;
    parts.push_back(PartsOfRawExtent(layout, std::min(layout.block_tokens, sent_tokens - first)));
  }
  posted.Add(extents);
  posted.AddParts(extents, parts);
}

// Writes the KV of a request that the peer has acknowledged to a file.
void Dump(const EngineRequest& request, const OutgoingKv& outgoing, KvDumper& dumper) {
  const auto prompt_tokens = static_cast<int32_t>(request.prompt.size());
  dumper.Write({.prompt_tokens = prompt_tokens,
                .evicted_tokens = prompt_tokens - TokensToSend(request, outgoing.target),
                .quality = request.quality,
                .codec = outgoing.encoded.codec,
                .request_id = IsKvDumpId(request.client_id) ? request.client_id
                                                            : fmt::to_string(request.id.value())},
               outgoing.posted->TakeDump());
}

absl::Status AboutPeer(const absl::Status& status, const HandoffTarget& target) {
  return Annotate(status, fmt::format("KV hand-off to {}", target.data_address));
}

}  // namespace

OutgoingKv KvSender::Open(const EngineRequest& request, HandoffTarget target) {
  const TimePoint began = clock_.Now();
  OutgoingKv outgoing{.target = std::move(target), .as_it_is = encoding_.encoder == nullptr};
  outgoing.error = AboutPeer(OpenStream(request, outgoing), outgoing.target);
  if (outgoing.error.ok()) {
    Advance(outgoing.state, SendEvent::kOpen);
    ++num_open_;
  } else {
    Advance(outgoing.state, SendEvent::kRefuse);
  }
  time_spent_ += clock_.Now() - began;
  return outgoing;
}

// Opens a stream. Its end may be reported by a worker after this object is gone, so the callback
// refers to the inbox, which outlives the stream.
absl::Status KvSender::OpenStream(const EngineRequest& request, OutgoingKv& outgoing) {
  if (transport_ == nullptr) return FailedPrecondition("this worker has no KV transport");
  const HandoffTarget& target = outgoing.target;
  outgoing.attempt = ++last_attempt_;
  const auto ended = [&inbox = inbox_, &clock = clock_, id = request.id,
                      attempt = outgoing.attempt](uint64_t, uint64_t, const absl::Status& status) {
    inbox.PushAlways(StreamEndedMessage{id, attempt, status, clock.Now()});
  };
  const Duration renew_every = target.lease / kRenewalsPerLease;
  if (encoding_.dumper != nullptr) {
    outgoing.posted->SetDump(encoding_.dumper->NewBuffer(TokensToSend(request, target)));
  }
  if (outgoing.as_it_is) {
    outgoing.encoded = {.codec = std::string(CodecName(CodecId::kRaw))};
    ASSIGN_OR_RETURN(outgoing.stream,
                     transport_->OpenStream(target.data_address, target.reservation.value(),
                                            target.epoch, renew_every, ended));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(
      outgoing.encoded,
      EncodedStream::Open({*encoding_.encoder, *encoding_.workers, *transport_}, target,
                          {.tokens = TokensToSend(request, target),
                           .quality = request.quality,
                           .posted = outgoing.posted},
                          renew_every, ended));
  outgoing.stream = outgoing.encoded.stream;
  return absl::OkStatus();
}

void KvSender::Begin(Sequence& sequence, int32_t cached_tokens) {
  const TimePoint began = clock_.Now();
  OutgoingKv& outgoing = *sequence.request.outgoing();
  if (sequence.will_evict()) return;
  outgoing.ready_blocks = cached_tokens / store_.layout().block_tokens;
  if (HasStream(outgoing)) outgoing.error = AboutPeer(PostReady(sequence), outgoing.target);
  time_spent_ += clock_.Now() - began;
}

absl::Status KvSender::PostReady(Sequence& sequence) {
  const OutgoingKv& outgoing = *sequence.request.outgoing();
  if (outgoing.ready_blocks == 0) return absl::OkStatus();
  return PostBlocks(0, store_.layout().num_layers, sequence, 0, outgoing.ready_blocks);
}

void KvSender::PostLayer(int32_t layer, std::span<const Chunk> chunks) {
  // Skips layers without a post early: the layer's weights evict the chunks from the CPU's caches,
  // so even reading the chunks costs misses.
  if (layer != 0 && layer < next_layer_) return;
  const TimePoint began = clock_.Now();
  next_layer_ = store_.layout().num_layers;
  for (const Chunk& chunk : chunks) {
    if (!chunk.sequence->request.outgoing() || chunk.sequence->eviction) continue;
    OutgoingKv& outgoing = *chunk.sequence->request.outgoing();
    if (!outgoing.error.ok()) continue;
    outgoing.error = AboutPeer(PostChunk(layer, chunk), outgoing.target);
    next_layer_ = std::min(next_layer_, NextPost(layer, chunk));
  }
  time_spent_ += clock_.Now() - began;
}

absl::Status KvSender::PostKept(Sequence& sequence) {
  const TimePoint began = clock_.Now();
  OutgoingKv& outgoing = *sequence.request.outgoing();
  outgoing.ready_blocks = store_.layout().BlocksFor(sequence.num_slots());
  absl::Status status;
  if (HasStream(outgoing)) status = AboutPeer(PostReady(sequence), outgoing.target);
  time_spent_ += clock_.Now() - began;
  return status;
}

int32_t KvSender::NextPost(int32_t layer, const Chunk& chunk) const {
  const ChunkBlocks blocks = BlocksOf(store_.layout(), chunk);
  const int32_t layers = LayersPerPost(blocks.last - blocks.first);
  const int32_t next = layer + layers - (layer + 1) % layers;
  return std::min(next, store_.layout().num_layers - 1);
}

// Posts the blocks of a chunk if `layer` is one at which KV is posted. While a stream is lost, KV
// that becomes ready waits until the stream is open again.
absl::Status KvSender::PostChunk(int32_t layer, const Chunk& chunk) {
  const KvLayout& layout = store_.layout();
  OutgoingKv& outgoing = *chunk.sequence->request.outgoing();
  const auto [first, last] = BlocksOf(layout, chunk);
  const bool is_last_layer = layer == layout.num_layers - 1;
  if (is_last_layer) outgoing.ready_blocks = last;
  if (!HasStream(outgoing)) return absl::OkStatus();
  const int32_t layers = LayersPerPost(last - first);
  if (chunk.samples > 0 && layers == layout.num_layers && layers > 1) {
    outgoing.posted_with_commit = first;
    return absl::OkStatus();
  }
  if ((layer + 1) % layers != 0 && !is_last_layer) return absl::OkStatus();
  return PostBlocks(layer - layer % layers, layer + 1, *chunk.sequence, first, last);
}

int32_t KvSender::LayersPerPost(int32_t blocks) const {
  const KvLayout& layout = store_.layout();
  const int64_t layer_bytes = std::max(1, blocks) * layout.ExtentBytes();
  const int64_t layers = (least_post_bytes_ + layer_bytes - 1) / layer_bytes;
  return static_cast<int32_t>(std::clamp<int64_t>(layers, 1, layout.num_layers));
}

// The peer gives its cached prefix in tokens, not in blocks, because its blocks may have another
// size.
absl::Status KvSender::PostBlocks(int32_t first_layer, int32_t last_layer, Sequence& sequence,
                                  int32_t first, int32_t last) {
  const BlockTable& table = sequence.tables.front();
  OutgoingKv& outgoing = *sequence.request.outgoing();
  const HandoffTarget& target = outgoing.target;
  first = std::max(first, target.cached_tokens / store_.layout().block_tokens);
  extents_.clear();
  for (int32_t layer = first_layer; layer < last_layer; ++layer) {
    for (int32_t block = first; block < last; ++block) {
      const BlockId id(table.block_ids()[static_cast<size_t>(block)]);
      extents_.push_back({.layer = static_cast<uint32_t>(layer),
                          .block = static_cast<uint32_t>(block),
                          .payload = store_.Extent(layer, id)});
    }
  }
  if (extents_.empty()) return absl::OkStatus();
  if (!outgoing.first_posted) outgoing.first_posted = clock_.Now();
  RETURN_IF_ERROR(outgoing.stream->Post(extents_));
  if (outgoing.as_it_is) {
    CountRaw(store_.layout(), TokensToSend(sequence.request.spec, target), extents_,
             *outgoing.posted);
  }
  return absl::OkStatus();
}

absl::Status KvSender::Commit(Sequence& root) {
  const TimePoint began = clock_.Now();
  OutgoingKv& outgoing = *root.request.outgoing();
  outgoing.computed = true;
  absl::Status status;
  if (HasStream(outgoing)) {
    status = PostRest(root);
    if (status.ok()) status = FinishStream(outgoing);
  }
  if (status.ok()) Advance(outgoing.state, SendEvent::kCommit);
  time_spent_ += clock_.Now() - began;
  return status;
}

absl::Status KvSender::PostRest(Sequence& root) {
  OutgoingKv& outgoing = *root.request.outgoing();
  const std::optional<int32_t> first = std::exchange(outgoing.posted_with_commit, std::nullopt);
  if (!first) return absl::OkStatus();
  return AboutPeer(PostBlocks(0, store_.layout().num_layers, root, *first, outgoing.ready_blocks),
                   outgoing.target);
}

absl::Status KvSender::FinishStream(OutgoingKv& outgoing) {
  return AboutPeer(outgoing.stream->Finish(), outgoing.target);
}

void KvSender::Abort(OutgoingKv& outgoing) {
  if (HasStream(outgoing)) outgoing.stream->Abort();
  End(outgoing, SendEvent::kAbort);
}

void KvSender::End(OutgoingKv& outgoing, SendEvent event) {
  if (outgoing.state != SendState::kClosed && outgoing.state != SendState::kEnded) --num_open_;
  Advance(outgoing.state, event);
}

std::optional<absl::Status> KvSender::Ended(RequestState& request,
                                            const StreamEndedMessage& message) {
  OutgoingKv& outgoing = *request.outgoing();
  if (message.attempt != outgoing.attempt || !HasStream(outgoing)) return std::nullopt;
  if (message.status.ok() && outgoing.state == SendState::kCommitted) {
    End(outgoing, SendEvent::kAcknowledged);
    Learn(outgoing, message.at);
    if (encoding_.dumper != nullptr) Dump(request.spec, outgoing, *encoding_.dumper);
    return absl::OkStatus();
  }
  if (MayReopen(outgoing, message.status)) {
    Advance(outgoing.state, SendEvent::kLose);
    if (absl::IsDataLoss(message.status)) outgoing.as_it_is = true;
    outgoing.reopen_at = clock_.Now() + kPauses[outgoing.reopened++];
    pauses_.push_back({outgoing.reopen_at, request.spec.id});
    LogWarn("request={} reservation={} lost its KV stream to {}, opens it again ({} of {}): {}",
            request.spec.id, outgoing.target.reservation, outgoing.target.data_address,
            outgoing.reopened, std::ssize(kPauses), message.status.ToString());
    return std::nullopt;
  }
  End(outgoing, SendEvent::kRefuse);
  const absl::Status early = FailedPrecondition("the peer acknowledged KV that was not sent yet");
  return AboutPeer(message.status.ok() ? early : message.status, outgoing.target);
}

std::vector<RequestId> KvSender::TakeDue(TimePoint now) {
  std::vector<RequestId> due;
  std::erase_if(pauses_, [&](const Pause& pause) {
    if (pause.until > now) return false;
    due.push_back(pause.id);
    return true;
  });
  return due;
}

TimePoint KvSender::NextReopen() const {
  TimePoint next = kNoDeadline;
  for (const Pause& pause : pauses_) next = std::min(next, pause.until);
  return next;
}

absl::Status KvSender::Reopen(Sequence& root, TimePoint now) {
  OutgoingKv& outgoing = *root.request.outgoing();
  // The pause that has ended may belong to an earlier request with the same id.
  if (outgoing.state != SendState::kLost || outgoing.reopen_at > now) return absl::OkStatus();
  if (absl::Status status = OpenStream(root.request.spec, outgoing); !status.ok()) {
    End(outgoing, SendEvent::kRefuse);
    return AboutPeer(status, outgoing.target);
  }
  Advance(outgoing.state, SendEvent::kReopen);
  ++num_reopened_;
  const TimePoint began = clock_.Now();
  absl::Status status = AboutPeer(PostReady(root), outgoing.target);
  if (status.ok() && outgoing.computed) {
    status = FinishStream(outgoing);
    if (status.ok()) Advance(outgoing.state, SendEvent::kCommit);
  }
  time_spent_ += clock_.Now() - began;
  return status;
}

// Lets the encoder learn from a transfer, unless its stream was reopened: then the extra time shows
// nothing about the codec.
void KvSender::Learn(const OutgoingKv& outgoing, TimePoint acknowledged) {
  if (outgoing.as_it_is || outgoing.reopened > 0 || !outgoing.first_posted) return;
  const TimePoint began = *outgoing.first_posted;
  encoding_.encoder->Learn(outgoing.target, outgoing.encoded.demand,
                           {.way = outgoing.encoded.way,
                            .took = acknowledged - began,
                            .computing = std::max(outgoing.first_token - began, Duration{})});
}

KvReport KvSender::Report(const RequestState& request, TimePoint acknowledged) const {
  const OutgoingKv& outgoing = *request.outgoing();
  const KvLayout& layout = store_.layout();
  const int32_t sent_tokens = std::max(0, request.prompt_tokens() - outgoing.target.cached_tokens);
  // When the peer had the whole prompt cached, only the commit was sent.
  const TimePoint began = outgoing.first_posted.value_or(outgoing.first_token);
  const PostedKv& posted = *outgoing.posted;
  return {.raw_bytes = static_cast<uint64_t>(sent_tokens * layout.BytesPerToken()),
          .wire_bytes = posted.payload_bytes() + (posted.frames() + 1) * kFrameHeaderBytes,
          .codec = outgoing.encoded.codec,
          .expected = std::chrono::duration_cast<Duration>(outgoing.encoded.expected),
          .duration = acknowledged - began,
          .exposed = acknowledged - std::max(began, outgoing.first_token),
          .parts = posted.parts()};
}

}  // namespace tandem
