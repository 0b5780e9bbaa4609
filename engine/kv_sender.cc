#include "engine/kv_sender.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"

namespace tandem {
namespace {

bool IsOpen(const OutgoingKv& outgoing) {
  return outgoing.state == OutgoingKv::State::kStreaming ||
         outgoing.state == OutgoingKv::State::kCommitted;
}

absl::Status AboutPeer(const absl::Status& status, const HandoffTarget& target) {
  return Annotate(status, fmt::format("KV hand-off to {}", target.data_address));
}

}  // namespace

void KvSender::Open(Sequence& sequence, int32_t cached_tokens) {
  const TimePoint began = clock_.Now();
  OutgoingKv& outgoing = *sequence.request.outgoing;
  absl::Status status = OpenStream(sequence);
  if (status.ok()) {
    outgoing.state = OutgoingKv::State::kStreaming;
    ++num_open_;
    status = PostCached(sequence, cached_tokens);
  }
  outgoing.error = AboutPeer(status, outgoing.target);
  time_spent_ += clock_.Now() - began;
}

absl::Status KvSender::OpenStream(Sequence& sequence) {
  if (transport_ == nullptr) return FailedPrecondition("this worker has no KV transport");
  const HandoffTarget& target = sequence.request.outgoing->target;
  const auto ended = [this, id = sequence.request.spec.id](uint64_t, uint64_t,
                                                           const absl::Status& status) {
    inbox_.PushAlways(StreamEndedMessage{id, status, clock_.Now()});
  };
  return transport_->OpenStream(target.data_address, target.reservation.value(), target.epoch,
                                Duration::zero(), ended);
}

void KvSender::PostLayer(int32_t layer, std::span<const Chunk> chunks) {
  const TimePoint began = clock_.Now();
  for (const Chunk& chunk : chunks) {
    if (!chunk.sequence->request.outgoing) continue;
    OutgoingKv& outgoing = *chunk.sequence->request.outgoing;
    if (!outgoing.error.ok()) continue;
    outgoing.error = AboutPeer(PostChunk(layer, chunk), outgoing.target);
  }
  time_spent_ += clock_.Now() - began;
}

absl::Status KvSender::PostCached(Sequence& sequence, int32_t cached_tokens) {
  const KvLayout& layout = store_.layout();
  for (int32_t layer = 0; layer < layout.num_layers; ++layer) {
    RETURN_IF_ERROR(PostBlocks(layer, sequence, 0, cached_tokens / layout.block_tokens));
  }
  return absl::OkStatus();
}

absl::Status KvSender::PostChunk(int32_t layer, const Chunk& chunk) {
  const int32_t block_tokens = store_.layout().block_tokens;
  // The block that `begin` lies in was not full before this chunk, so it was not posted.
  const int32_t first = chunk.begin / block_tokens;
  const int32_t last =
      chunk.samples > 0 ? store_.layout().BlocksFor(chunk.end()) : chunk.end() / block_tokens;
  return PostBlocks(layer, *chunk.sequence, first, last);
}

absl::Status KvSender::PostBlocks(int32_t layer, Sequence& sequence, int32_t first, int32_t last) {
  const BlockTable& table = sequence.tables.front();
  OutgoingKv& outgoing = *sequence.request.outgoing;
  const HandoffTarget& target = outgoing.target;
  for (int32_t block = std::max(first, target.cached_blocks); block < last; ++block) {
    if (outgoing.frames == 0) outgoing.first_posted = clock_.Now();
    const BlockId id(table.block_ids()[static_cast<size_t>(block)]);
    RETURN_IF_ERROR(transport_->Post(target.reservation.value(), target.epoch,
                                     static_cast<uint32_t>(layer), static_cast<uint32_t>(block),
                                     store_.Extent(layer, id)));
    ++outgoing.frames;
  }
  return absl::OkStatus();
}

absl::Status KvSender::Commit(RequestState& request) {
  const TimePoint began = clock_.Now();
  OutgoingKv& outgoing = *request.outgoing;
  TANDEM_CHECK(outgoing.state == OutgoingKv::State::kStreaming, "a commit without a stream");
  const absl::Status status =
      transport_->FinishStream(outgoing.target.reservation.value(), outgoing.target.epoch);
  if (status.ok()) outgoing.state = OutgoingKv::State::kCommitted;
  time_spent_ += clock_.Now() - began;
  return AboutPeer(status, outgoing.target);
}

void KvSender::Abort(RequestState& request) {
  OutgoingKv& outgoing = *request.outgoing;
  if (IsOpen(outgoing)) {
    transport_->AbortStream(outgoing.target.reservation.value(), outgoing.target.epoch);
    --num_open_;
  }
  outgoing.state = OutgoingKv::State::kEnded;
}

absl::Status KvSender::Ended(RequestState& request, const StreamEndedMessage& message) {
  OutgoingKv& outgoing = *request.outgoing;
  const bool committed = outgoing.state == OutgoingKv::State::kCommitted;
  if (IsOpen(outgoing)) --num_open_;
  outgoing.state = OutgoingKv::State::kEnded;
  if (message.status.ok() && !committed) {
    return AboutPeer(FailedPrecondition("the peer acknowledged KV that was not sent yet"),
                     outgoing.target);
  }
  return AboutPeer(message.status, outgoing.target);
}

KvReport KvSender::Report(const RequestState& request, TimePoint acknowledged) const {
  const OutgoingKv& outgoing = *request.outgoing;
  const KvLayout& layout = store_.layout();
  const uint64_t frame_bytes = kFrameHeaderBytes + static_cast<uint64_t>(layout.ExtentBytes());
  const int64_t cached_tokens = int64_t{outgoing.target.cached_blocks} * layout.block_tokens;
  const int64_t sent_tokens = std::max<int64_t>(0, request.prompt_tokens() - cached_tokens);
  // With nothing to send, the commit is all that went.
  const TimePoint began = outgoing.frames > 0 ? outgoing.first_posted : outgoing.first_token;
  return {.raw_bytes = static_cast<uint64_t>(sent_tokens * layout.BytesPerToken()),
          .wire_bytes = outgoing.frames * frame_bytes + kFrameHeaderBytes,
          .duration = acknowledged - began,
          .exposed = acknowledged - outgoing.first_token};
}

}  // namespace tandem
