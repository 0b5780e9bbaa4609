#include "engine/kv_sender.h"

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

void KvSender::Open(Sequence& sequence) {
  const TimePoint began = clock_.Now();
  OutgoingKv& outgoing = *sequence.outgoing;
  const absl::Status status = OpenStream(sequence);
  if (status.ok()) {
    outgoing.state = OutgoingKv::State::kStreaming;
    ++num_open_;
  } else {
    outgoing.error = AboutPeer(status, outgoing.target);
  }
  time_spent_ += clock_.Now() - began;
}

absl::Status KvSender::OpenStream(Sequence& sequence) {
  if (transport_ == nullptr) return FailedPrecondition("this worker has no KV transport");
  const HandoffTarget& target = sequence.outgoing->target;
  const auto ended = [this, id = sequence.id](uint64_t, uint64_t, const absl::Status& status) {
    inbox_.PushAlways(StreamEndedMessage{id, status, clock_.Now()});
  };
  return transport_->OpenStream(target.data_address, target.reservation.value(), target.epoch,
                                ended);
}

void KvSender::PostLayer(int32_t layer, std::span<const Chunk> chunks) {
  const TimePoint began = clock_.Now();
  for (const Chunk& chunk : chunks) {
    if (!chunk.sequence->outgoing) continue;
    OutgoingKv& outgoing = *chunk.sequence->outgoing;
    if (!outgoing.error.ok()) continue;
    outgoing.error = AboutPeer(PostChunk(layer, chunk), outgoing.target);
  }
  time_spent_ += clock_.Now() - began;
}

absl::Status KvSender::PostChunk(int32_t layer, const Chunk& chunk) {
  const BlockTable& table = chunk.sequence->table;
  OutgoingKv& outgoing = *chunk.sequence->outgoing;
  const int32_t block_tokens = store_.layout().block_tokens;
  // The block that `begin` lies in was not full before this chunk, so it was not posted.
  const int32_t first = chunk.begin / block_tokens;
  const int32_t last =
      chunk.sampled ? store_.layout().BlocksFor(chunk.end()) : chunk.end() / block_tokens;
  for (int32_t block = first; block < last; ++block) {
    if (outgoing.frames == 0) outgoing.first_posted = clock_.Now();
    const BlockId id(table.block_ids()[static_cast<size_t>(block)]);
    RETURN_IF_ERROR(transport_->Post(outgoing.target.reservation.value(), outgoing.target.epoch,
                                     static_cast<uint32_t>(layer), static_cast<uint32_t>(block),
                                     store_.Extent(layer, id)));
    ++outgoing.frames;
  }
  return absl::OkStatus();
}

absl::Status KvSender::Commit(Sequence& sequence) {
  const TimePoint began = clock_.Now();
  OutgoingKv& outgoing = *sequence.outgoing;
  TANDEM_CHECK(outgoing.state == OutgoingKv::State::kStreaming, "a commit without a stream");
  const absl::Status status =
      transport_->FinishStream(outgoing.target.reservation.value(), outgoing.target.epoch);
  if (status.ok()) outgoing.state = OutgoingKv::State::kCommitted;
  time_spent_ += clock_.Now() - began;
  return AboutPeer(status, outgoing.target);
}

void KvSender::Abort(Sequence& sequence) {
  OutgoingKv& outgoing = *sequence.outgoing;
  if (IsOpen(outgoing)) {
    transport_->AbortStream(outgoing.target.reservation.value(), outgoing.target.epoch);
    --num_open_;
  }
  outgoing.state = OutgoingKv::State::kEnded;
}

absl::Status KvSender::Ended(Sequence& sequence, const StreamEndedMessage& message) {
  OutgoingKv& outgoing = *sequence.outgoing;
  const bool committed = outgoing.state == OutgoingKv::State::kCommitted;
  if (IsOpen(outgoing)) --num_open_;
  outgoing.state = OutgoingKv::State::kEnded;
  if (message.status.ok() && !committed) {
    return AboutPeer(FailedPrecondition("the peer acknowledged KV that was not sent yet"),
                     outgoing.target);
  }
  return AboutPeer(message.status, outgoing.target);
}

KvReport KvSender::Report(const Sequence& sequence, TimePoint acknowledged) const {
  const OutgoingKv& outgoing = *sequence.outgoing;
  const KvLayout& layout = store_.layout();
  const uint64_t frame_bytes = kFrameHeaderBytes + static_cast<uint64_t>(layout.ExtentBytes());
  return {
      .raw_bytes = sequence.request.prompt.size() * static_cast<uint64_t>(layout.BytesPerToken()),
      .wire_bytes = outgoing.frames * frame_bytes + kFrameHeaderBytes,
      .duration = acknowledged - outgoing.first_posted,
      .exposed = acknowledged - outgoing.first_token};
}

}  // namespace tandem
