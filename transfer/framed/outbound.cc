#include "transfer/framed/outbound.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/status.h"

namespace tandem {
namespace {

// The size of the buffer into which answers are read. Answers are small, and thousands may come at
// once.
constexpr size_t kReplyBytes = 4 << 10;

}  // namespace

OutboundConnection::OutboundConnection(PeerStreams& streams, std::unique_ptr<ByteChannel> channel,
                                       std::unique_ptr<OutboundPayloads> payloads,
                                       TransportCounters& counters, const Timeouts& timeouts)
    : streams_(streams),
      channel_(std::move(channel)),
      payloads_(std::move(payloads)),
      counters_(counters),
      timeouts_(timeouts),
      reader_(*this),
      last_progress_(std::chrono::steady_clock::now()),
      deadline_(last_progress_ + timeouts_.connect) {}

void OutboundConnection::DropStream(StreamKey key) {
  streams_.TakeBack(payloads_->Drop(key, batch_));
}

absl::StatusOr<Turn> OutboundConnection::Advance() {
  if (!established_) {
    ASSIGN_OR_RETURN(established_, channel_->Establish());
    if (!established_) return Turn::kDone;
    streams_.link().Count(&LinkStats::connects);
  }
  const absl::StatusOr<Turn> turn = ReadAndSend();
  if (payloads_->is_sending()) streams_.answer_timer().Reset(std::chrono::steady_clock::now());
  // This turn has sent what became possible to send, or an event will say when to go on.
  streams_.queue().ClearNews();
  UpdateDeadline();
  return turn;
}

absl::StatusOr<Turn> OutboundConnection::ReadAndSend() {
  RETURN_IF_ERROR(ReadReplies());
  absl::StatusOr<Turn> turn = Send();
  // A peer that closes the connection sends the reason before, which is still to be read.
  if (!turn.ok()) RETURN_IF_ERROR(ReadReplies());
  return turn;
}

absl::Status OutboundConnection::ReadReplies() {
  std::array<std::byte, kReplyBytes> bytes;
  const iovec part = {bytes.data(), bytes.size()};
  while (true) {
    ASSIGN_OR_RETURN(const size_t count, channel_->Read({&part, 1}));
    if (count == 0) return absl::OkStatus();
    counters_.received += count;
    RETURN_IF_ERROR(reader_.Feed(std::span(bytes).first(count)));
    if (got_data_) return InvalidArgument("data frame from a receiver");
    // A short read means that nothing is left in the socket (ByteChannel::read_ahead_bytes).
    if (count < bytes.size() && channel_->read_ahead_bytes() > 0) return absl::OkStatus();
  }
}

absl::StatusOr<Turn> OutboundConnection::Send() {
  std::array<iovec, FrameBatch::kMaxParts> parts;
  for (size_t total = 0; total < kBytesPerTurn;) {
    RETURN_IF_ERROR(payloads_->Fill(streams_, batch_, std::chrono::steady_clock::now()));
    if (batch_.empty()) {
      // There is nothing new to write, but the channel may hold bytes that it took before.
      if (channel_->wants_output()) RETURN_IF_ERROR(channel_->Write({}).status());
      return Turn::kDone;
    }
    ASSIGN_OR_RETURN(const size_t count, channel_->Write(batch_.Parts(parts)));
    if (count == 0) return Turn::kDone;
    const FrameBatch::Sent sent = batch_.TakeSent(count);
    if (sent.is_progress) last_progress_ = std::chrono::steady_clock::now();
    counters_.sent += sent.bytes;
    total += sent.bytes;
  }
  return Turn::kMore;
}

void OutboundConnection::UpdateDeadline() {
  const TimePoint now = std::chrono::steady_clock::now();
  const bool waits_for_peer = streams_.queue().WaitsForPeer() && !payloads_->lacks_room();
  const bool waits = !batch_.empty() || waits_for_peer;
  if (!std::exchange(waited_, waits)) last_progress_ = now;
  deadline_ = waits ? last_progress_ + timeouts_.stall : kNoDeadline;
}

absl::StatusOr<std::span<std::byte>> OutboundConnection::Prepare(const FrameHeader&) {
  got_data_ = true;
  return Cancelled("nothing is received here");
}

absl::Status OutboundConnection::Control(const FrameHeader& header) {
  const TimePoint now = std::chrono::steady_clock::now();
  // The answer to a renewal may repeat a credit, which is no progress.
  const bool repeats_credit = header.type == FrameType::kCredit && header.frames <= credit_;
  if (header.type == FrameType::kCredit) credit_ = std::max(credit_, header.frames);
  if (!repeats_credit) last_progress_ = now;
  return streams_.OnReply(header, now);
}

}  // namespace tandem
