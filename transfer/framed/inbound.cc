#include "transfer/framed/inbound.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace tandem {

InboundConnection::InboundConnection(std::unique_ptr<ByteChannel> channel,
                                     std::unique_ptr<InboundPayloads> payloads,
                                     const ReceiveCredit& credit, Context context)
    : channel_(std::move(channel)),
      payloads_(std::move(payloads)),
      context_(std::move(context)),
      reader_(*this),
      credit_(credit),
      last_progress_(std::chrono::steady_clock::now()) {}

absl::StatusOr<Turn> InboundConnection::Advance() {
  if (stage_ == Stage::kEstablishing) {
    ASSIGN_OR_RETURN(const bool established, Establish());
    if (!established) return Turn::kDone;
    stage_ = Stage::kBeforeHello;
    last_progress_ = std::chrono::steady_clock::now();
  }
  const absl::StatusOr<Turn> turn = Read();
  const absl::Status landed = Flush();
  // Between two frames no payload is arriving, so the sender may be waiting for even a small
  // credit. Payloads that travel in a side channel have landed even in the middle of a frame.
  if (!reader_.mid_frame() || !payloads_->carries_data()) {
    credit_.Consume();
    Grant(ReceiveCredit::Grant::kAll);
  }
  const absl::Status written = replies_.WriteTo(*channel_, context_.counters);
  if (!turn.ok()) return turn.status();
  RETURN_IF_ERROR(landed);
  RETURN_IF_ERROR(written);
  return turn;
}

absl::StatusOr<bool> InboundConnection::Establish() {
  absl::StatusOr<bool> established = channel_->Establish();
  if (absl::IsFailedPrecondition(established.status())) {
    ++context_.counters.unauthenticated;
    ++context_.counters.closed;
  }
  return established;
}

absl::StatusOr<Turn> InboundConnection::Read() {
  const size_t read_ahead = std::min(context_.read_ahead.size(), channel_->read_ahead_bytes());
  for (size_t total = 0; total < kBytesPerTurn;) {
    if (payloads_->is_arriving()) return Turn::kDone;
    const auto targets = reader_.Targets();
    const size_t with_place = targets[0].size() + targets[1].size();
    const size_t ahead = with_place < read_ahead ? read_ahead : 0;
    const iovec parts[3] = {{targets[0].data(), targets[0].size()},
                            {targets[1].data(), targets[1].size()},
                            {context_.read_ahead.data(), ahead}};
    ASSIGN_OR_RETURN(const size_t count, channel_->Read(parts));
    if (count == 0) return Turn::kDone;
    context_.counters.received += count;
    total += count;
    // Before the hello, bytes do not prolong the deadline: a peer that sends its hello byte by byte
    // gets no more time.
    if (stage_ == Stage::kOpen) last_progress_ = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(Take(count, with_place));
    GrantNow();
    if (read_ahead > 0 && count < with_place + ahead) return Turn::kDone;
  }
  return Turn::kMore;
}

// Handles `count` bytes that were read. The first `with_place` lie where they belong, the rest in
// the read-ahead buffer.
absl::Status InboundConnection::Take(size_t count, size_t with_place) {
  absl::Status status = reader_.Advance(std::min(count, with_place));
  if (status.ok() && count > with_place) {
    status = reader_.Feed(context_.read_ahead.first(count - with_place));
  }
  RETURN_IF_ERROR(lost_);
  if (!status.ok()) {
    ++context_.counters.malformed;
  } else {
    status = wrong_;
  }
  if (!status.ok()) ++context_.counters.closed;
  return status;
}

TimePoint InboundConnection::deadline() const {
  if (stage_ != Stage::kOpen) return last_progress_ + context_.timeouts.connect;
  return reader_.mid_frame() ? last_progress_ + context_.timeouts.stall : kNoDeadline;
}

void InboundConnection::OnClosed(const absl::Status& status) {
  reader_.Stop(Annotate(Unavailable("a payload did not arrive whole"),
                        std::string_view(status.message().data(), status.message().size())));
}

absl::Status InboundConnection::CheckData() const {
  if (stage_ != Stage::kOpen) return InvalidArgument("a data frame before the hello");
  if (payloads_->carries_data()) return absl::OkStatus();
  return InvalidArgument("a data frame where payloads have a side channel");
}

absl::StatusOr<std::span<std::byte>> InboundConnection::Prepare(const FrameHeader& header) {
  if (absl::Status status = CheckData(); !status.ok()) {
    ++context_.counters.malformed;
    return wrong_ = std::move(status);
  }
  credit_.Consume();
  credit_.Arriving(header.payload_bytes);
  if (refused_.Find(KeyOf(header))) return Cancelled("stream {} is refused already", header.stream);
  return payloads_->Prepare(header, *this);
}

absl::StatusOr<std::span<std::byte>> InboundConnection::AskForPlace(const FrameHeader& header) {
  if (refused_.Find(KeyOf(header))) return Cancelled("stream {} is refused already", header.stream);
  auto place = context_.receiver.Prepare(header);
  // A payload that was not reported to the receiver yet may be in the way: it stands where this one
  // belongs, or takes one of the receiver's few places.
  if (absl::IsAborted(place.status()) && payloads_->has_queued()) {
    RETURN_IF_ERROR(Flush());
    place = context_.receiver.Prepare(header);
  }
  if (absl::IsAlreadyExists(place.status())) {
    ++context_.counters.stale;
  } else if (!place.ok() && !absl::IsAborted(place.status())) {
    Refuse(header, place.status());
  }
  return place;
}

absl::Status InboundConnection::FlushAndGrant() {
  RETURN_IF_ERROR(Flush());
  credit_.Consume();
  GrantNow();
  return absl::OkStatus();
}

void InboundConnection::Received(uint32_t payload_bytes) {
  context_.counters.received += payload_bytes;
  credit_.Arriving(payload_bytes);
}

absl::Status InboundConnection::Fail(const absl::Status& status) { return lost_ = status; }

// Brings all payloads that have come whole into place, those of the transport's other connections
// included.
absl::Status InboundConnection::Flush() {
  const absl::StatusOr<size_t> damaged = payloads_->Flush();
  if (!damaged.ok()) return Fail(damaged.status());
  context_.counters.corrupted += *damaged;
  return absl::OkStatus();
}

void InboundConnection::Landed(const FrameHeader& header, const absl::Status& status) {
  if (absl::IsDataLoss(status)) ++context_.counters.corrupted;
  credit_.Consume();
  if (payloads_->Landed(header, status)) context_.receiver.Landed(header, status);
}

absl::Status InboundConnection::Control(const FrameHeader& header) {
  if (header.type == FrameType::kHello) return OnHello();
  if (stage_ != Stage::kOpen) return InvalidArgument("a frame before the hello");
  if (header.type == FrameType::kReference) return payloads_->OnReference(header, *this);
  // The receiver has to get the payloads of a stream before its commit.
  RETURN_IF_ERROR(Flush());
  credit_.Consume();
  switch (header.type) {
    case FrameType::kCommit:
      OnCommit(header);
      return absl::OkStatus();
    case FrameType::kAnnounce:
      return payloads_->OnAnnouncement(header, *this);
    case FrameType::kRenew:
      OnRenewal(header);
      return absl::OkStatus();
    default:
      return InvalidArgument("frame of type {} from a sender", static_cast<int>(header.type));
  }
}

absl::Status InboundConnection::OnHello() {
  if (stage_ == Stage::kOpen) return InvalidArgument("a second hello");
  stage_ = Stage::kOpen;
  context_.greeted();
  return absl::OkStatus();
}

void InboundConnection::OnCommit(const FrameHeader& header) {
  credit_.Settle(header.sent_bytes);
  const StreamKey key = KeyOf(header);
  if (const auto refused = refused_.Find(key)) {
    refused_.Erase(key);
    return replies_.Reject(key, header.block, *refused);
  }
  const CommitAnswer answer = context_.receiver.Commit(header);
  if (!answer.status.ok()) {
    Refuse(header, answer.status);
    refused_.Erase(key);  // nothing of the stream is left to come
  } else if (!answer.missing.empty()) {
    replies_.Resend(key, answer.missing);
  } else {
    replies_.Ack(key, header.block);
  }
}

void InboundConnection::OnRenewal(const FrameHeader& header) {
  // The credit is repeated because it may have been lost: a sender that waits for it sends nothing
  // but renewals.
  Grant(ReceiveCredit::Grant::kRepeat);
  if (refused_.Find(KeyOf(header))) return;
  const absl::Status status = context_.receiver.Renewed(header.stream, header.epoch);
  if (!status.ok()) Refuse(header, status);
}

void InboundConnection::Refuse(const FrameHeader& header, const absl::Status& status) {
  if (absl::IsPermissionDenied(status)) {
    ++context_.counters.unauthenticated;
    wrong_ = status;
  } else if (absl::IsNotFound(status) || absl::IsFailedPrecondition(status)) {
    ++context_.counters.stale;
  }
  const uint32_t commit = header.type == FrameType::kCommit ? header.block : 0;
  refused_.Add(KeyOf(header), status.code());
  replies_.Reject(KeyOf(header), commit, status.code());
}

// Queues a credit frame if one is due. Returns whether it did.
bool InboundConnection::Grant(ReceiveCredit::Grant grant) {
  if (stage_ != Stage::kOpen) return false;
  const auto credit = credit_.TakeGrant(grant, std::chrono::steady_clock::now());
  if (credit) replies_.Credit(*credit);
  return credit.has_value();
}

// Writes credit at once, because the turn may go on for megabytes and the sender takes what a
// credit acknowledges to have just arrived (LinkMeter). An error shows again at the end of the
// turn, after whatever has come was read.
void InboundConnection::GrantNow() {
  if (Grant(ReceiveCredit::Grant::kWorthAFrame)) {
    replies_.WriteTo(*channel_, context_.counters).IgnoreError();
  }
}

}  // namespace tandem
