#include "transfer/framed/inbound.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace tandem {
namespace {

// Far more replies than there can be streams under way: a peer that reads none of them is broken.
constexpr size_t kMaxReplyBytes = 4 << 20;
// As many missing extents are named in one answer; the others in the next one.
constexpr size_t kMaxResends = 8192;

}  // namespace

InboundConnection::InboundConnection(std::unique_ptr<ByteChannel> channel, FrameReceiver& receiver,
                                     const LandingWays& landings, JoinGroup join_group,
                                     std::span<std::byte> read_ahead, TransportCounters& counters,
                                     const Timeouts& timeouts)
    : channel_(std::move(channel)),
      receiver_(receiver),
      landings_(landings),
      join_group_(std::move(join_group)),
      read_ahead_(read_ahead),
      counters_(counters),
      timeouts_(timeouts),
      reader_(*this),
      last_progress_(std::chrono::steady_clock::now()) {}

absl::StatusOr<Turn> InboundConnection::Advance() {
  if (!established_) {
    ASSIGN_OR_RETURN(established_, Establish());
    if (!established_) return Turn::kDone;
    last_progress_ = std::chrono::steady_clock::now();
  }
  const absl::StatusOr<Turn> turn = Read();
  const absl::Status landed = Flush();
  // Where nothing more is under way on this connection, the sender may wait for any rest of credit.
  // What a lane brings has landed, wherever the frames stand.
  if (!reader_.mid_frame() || channel_->lane() != nullptr) {
    Consume();
    GrantCredit(InboundGroup::Grant::kAll);
  }
  const absl::Status written = WriteReplies();
  if (!turn.ok()) return turn.status();
  RETURN_IF_ERROR(landed);
  RETURN_IF_ERROR(written);
  return turn;
}

absl::StatusOr<bool> InboundConnection::Establish() {
  absl::StatusOr<bool> established = channel_->Establish();
  if (absl::IsFailedPrecondition(established.status())) {
    ++counters_.strangers;
    ++counters_.closed;
  }
  return established;
}

// The payload that came last has landed or was dropped; of a lane, all that was named.
void InboundConnection::Consume() {
  if (group_ == nullptr) return;
  consumed_bytes_ += coming_bytes_;
  group_->Consumed(static_cast<int64_t>(std::exchange(coming_bytes_, 0)));
}

absl::StatusOr<Turn> InboundConnection::Read() {
  const size_t read_ahead = std::min(read_ahead_.size(), channel_->read_ahead_bytes());
  const PayloadLane* const lane = channel_->lane();
  for (size_t total = 0; total < kBytesPerTurn;) {
    if (lane != nullptr && lane->arriving()) return Turn::kDone;
    const auto targets = reader_.Targets();
    const size_t with_place = targets[0].size() + targets[1].size();
    const size_t ahead = with_place < read_ahead ? read_ahead : 0;
    const iovec parts[3] = {{targets[0].data(), targets[0].size()},
                            {targets[1].data(), targets[1].size()},
                            {read_ahead_.data(), ahead}};
    ASSIGN_OR_RETURN(const size_t count, channel_->Read(parts));
    if (count == 0) return Turn::kDone;
    counters_.received += count;
    total += count;
    last_progress_ = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(Take(count, with_place));
    GrantWhatIsWorthAFrame();
    if (read_ahead > 0 && count < with_place + ahead) return Turn::kDone;
  }
  return Turn::kMore;
}

// `count` bytes were read, of which `with_place` fit where they belong.
absl::Status InboundConnection::Take(size_t count, size_t with_place) {
  absl::Status status = reader_.Advance(std::min(count, with_place));
  if (status.ok() && count > with_place) {
    status = reader_.Feed(std::span(read_ahead_).first(count - with_place));
  }
  RETURN_IF_ERROR(lost_);  // no fault of the peer's
  if (!status.ok()) {
    ++counters_.malformed;
  } else {
    status = wrong_;
  }
  if (!status.ok()) ++counters_.closed;
  return status;
}

absl::Status InboundConnection::WriteReplies() {
  while (!replies_.empty()) {
    const iovec part = {replies_.data(), replies_.size()};
    ASSIGN_OR_RETURN(const size_t count, channel_->Write({&part, 1}));
    if (count == 0) break;
    counters_.sent += count;
    replies_.erase(0, count);
  }
  // The channel may hold bytes that it took before.
  if (replies_.empty() && channel_->wants_output()) {
    RETURN_IF_ERROR(channel_->Write({}).status());
  }
  if (replies_.size() > kMaxReplyBytes) {
    return Unavailable("the peer does not read: {} bytes of replies wait", replies_.size());
  }
  return absl::OkStatus();
}

TimePoint InboundConnection::deadline() const {
  if (group_ == nullptr) return last_progress_ + timeouts_.connect;
  return reader_.mid_frame() ? last_progress_ + timeouts_.stall : kNoDeadline;
}

void InboundConnection::OnClosed(const absl::Status& status) {
  reader_.Stop(Annotate(Unavailable("a payload did not arrive whole"),
                        std::string_view(status.message().data(), status.message().size())));
}

absl::StatusOr<std::span<std::byte>> InboundConnection::Prepare(const FrameHeader& header) {
  if (group_ == nullptr) {
    ++counters_.malformed;
    wrong_ = InvalidArgument("a data frame before the hello");
    return wrong_;
  }
  if (channel_->lane() != nullptr) {
    ++counters_.malformed;
    wrong_ = InvalidArgument("a data frame where payloads have a lane");
    return wrong_;
  }
  Consume();
  coming_bytes_ = header.payload_bytes;
  const StreamKey key = KeyOf(header);
  if (group_->refused().Find(key)) return Cancelled("stream {} is refused already", key.stream);
  return landings_.staged == nullptr ? AskForPlace(header) : PrepareStaged(header);
}

absl::StatusOr<std::span<std::byte>> InboundConnection::AskForPlace(const FrameHeader& header) {
  auto place = receiver_.Prepare(header);
  // What has not been told of may be in its way: it stands where this one belongs, or the receiver
  // has only so many places.
  if (absl::IsAborted(place.status()) && landings_wait()) {
    RETURN_IF_ERROR(Flush());
    place = receiver_.Prepare(header);
  }
  if (absl::IsAlreadyExists(place.status())) {
    ++counters_.stale;
  } else if (!place.ok() && !absl::IsAborted(place.status())) {
    Refuse(KeyOf(header), 0, place.status());
  }
  return place;
}

// The payload is read into a slot, and copied from there when it is whole.
absl::StatusOr<std::span<std::byte>> InboundConnection::PrepareStaged(const FrameHeader& header) {
  if (header.payload_bytes > landings_.staged->pool().payload_bytes()) {
    const absl::Status status = InvalidArgument(
        "stream {}: payload of {} bytes: this worker takes at most {}", header.stream,
        header.payload_bytes, landings_.staged->pool().payload_bytes());
    Refuse(KeyOf(header), 0, status);
    return status;
  }
  absl::StatusOr<StagedSlot> slot = landings_.staged->Take();
  if (!slot.ok()) return lost_ = slot.status();
  // As when the receiver says ABORTED: it is missing at the commit and comes again.
  if (!*slot) return ResourceExhausted("each of the slots has part of a payload");
  ASSIGN_OR_RETURN(place_, AskForPlace(header));
  slot_ = *std::move(slot);
  return slot_.bytes().first(header.payload_bytes);
}

bool InboundConnection::landings_wait() const {
  return (landings_.staged != nullptr && !landings_.staged->empty()) ||
         (landings_.pulled != nullptr && !landings_.pulled->empty());
}

// Whatever has come whole has landed, of all connections.
absl::Status InboundConnection::Flush() {
  absl::Status status;
  if (landings_.staged != nullptr) status = landings_.staged->Flush();
  if (landings_.pulled != nullptr) {
    const absl::StatusOr<size_t> damaged = landings_.pulled->Flush();
    if (damaged.ok()) counters_.corrupted += *damaged;
    if (status.ok()) status = damaged.status();
  }
  if (named_) channel_->lane()->Release(named_->place, named_->bytes);
  named_.reset();
  if (!status.ok()) lost_ = status;
  return status;
}

void InboundConnection::Landed(const FrameHeader& header, const absl::Status& status) {
  if (absl::IsDataLoss(status)) ++counters_.corrupted;
  Consume();
  if (slot_ && status.ok()) return landings_.staged->Queue(header, std::move(slot_), place_);
  slot_ = StagedSlot();
  receiver_.Landed(header, status);
}

absl::Status InboundConnection::Control(const FrameHeader& header) {
  if (header.type == FrameType::kReference) return OnReference(header);
  RETURN_IF_ERROR(Flush());  // before the receiver hears of a commit
  Consume();
  if (header.type == FrameType::kHello) return OnHello(header);
  if (group_ == nullptr) return InvalidArgument("a frame before the hello");
  if (header.type == FrameType::kCommit) return OnCommit(header);
  if (header.type == FrameType::kAnnounce) return OnAnnounce(header);
  if (header.type != FrameType::kRenew) {
    return InvalidArgument("frame of type {} from a sender", static_cast<int>(header.type));
  }
  OnRenewal(header);
  return absl::OkStatus();
}

absl::Status InboundConnection::OnHello(const FrameHeader& header) {
  if (group_ != nullptr) return InvalidArgument("a second hello");
  ASSIGN_OR_RETURN(group_, join_group_(header));
  index_ = header.layer;
  return absl::OkStatus();
}

absl::Status InboundConnection::OnAnnounce(const FrameHeader& header) {
  if (channel_->lane() == nullptr) return InvalidArgument("an announcement without a lane");
  return LaneSays(channel_->lane()->Expect(header.payload_bytes));
}

absl::Status InboundConnection::LaneSays(const absl::Status& status) {
  // What is no nonsense of the peer's is no fault of its either.
  if (!status.ok() && !absl::IsInvalidArgument(status)) lost_ = status;
  return status;
}

// The payload lies where the lane finds it, and is copied from there with others.
absl::Status InboundConnection::OnReference(const FrameHeader& header) {
  if (group_ == nullptr) return InvalidArgument("a reference before the hello");
  if (channel_->lane() == nullptr) return InvalidArgument("a reference without a lane");
  const absl::StatusOr<std::span<const std::byte>> source =
      channel_->lane()->Find(header.place, header.payload_bytes);
  if (!source.ok()) return LaneSays(source.status());
  // Where nothing is received there are no landings: AskForPlace refuses.
  if (landings_.pulled != nullptr && landings_.pulled->full()) {
    RETURN_IF_ERROR(Flush());
    Consume();
    GrantWhatIsWorthAFrame();
  }
  counters_.received += header.payload_bytes;
  coming_bytes_ += header.payload_bytes;
  if (!group_->refused().Find(KeyOf(header))) {
    const absl::StatusOr<std::span<std::byte>> place = AskForPlace(header);
    // Else refused, or it is missing at the commit and comes again.
    if (place.ok()) landings_.pulled->Queue(header, *source, *place);
  }
  named_ = {.place = header.place, .bytes = header.payload_bytes};
  return absl::OkStatus();
}

absl::Status InboundConnection::OnCommit(const FrameHeader& header) {
  // Whatever became of the payload before it, none of it is under way any more.
  group_->Consumed(static_cast<int64_t>(header.sent_bytes - consumed_bytes_));
  consumed_bytes_ = header.sent_bytes;
  ASSIGN_OR_RETURN(const bool complete, group_->CommitCame(header, index_));
  if (!complete) return absl::OkStatus();
  const StreamKey key = KeyOf(header);
  if (const auto refused = group_->refused().Find(key)) {
    group_->refused().Erase(key);
    Reject(key, header.block, *refused);
    return absl::OkStatus();
  }
  const CommitAnswer answer = receiver_.Commit(header);
  if (!answer.status.ok()) {
    Refuse(key, header.block, answer.status);
    group_->refused().Erase(key);  // nothing of it is left to come
    return absl::OkStatus();
  }
  const size_t missing = std::min(answer.missing.size(), kMaxResends);
  for (const MissingExtent& extent : std::span(answer.missing).first(missing)) {
    Reply({.type = FrameType::kResend,
           .stream = key.stream,
           .epoch = key.epoch,
           .layer = extent.layer,
           .block = extent.block,
           .frames = missing});
  }
  if (missing > 0) return absl::OkStatus();
  Reply({.type = FrameType::kAck, .stream = key.stream, .epoch = key.epoch, .block = header.block});
  return absl::OkStatus();
}

void InboundConnection::OnRenewal(const FrameHeader& header) {
  // Whoever waits for a credit that was lost has nothing else to say.
  GrantCredit(InboundGroup::Grant::kRepeat);
  const StreamKey key = KeyOf(header);
  if (group_->refused().Find(key)) return;
  if (absl::Status status = receiver_.Renewed(key.stream, key.epoch); !status.ok()) {
    Refuse(key, 0, status);
  }
}

void InboundConnection::Refuse(StreamKey key, uint32_t commit, const absl::Status& status) {
  if (absl::IsPermissionDenied(status)) {
    ++counters_.strangers;
    wrong_ = status;
  } else if (absl::IsNotFound(status) || absl::IsFailedPrecondition(status)) {
    ++counters_.stale;
  }
  group_->refused().Add(key, status.code());
  Reject(key, commit, status.code());
}

void InboundConnection::Reject(StreamKey key, uint32_t commit, absl::StatusCode code) {
  Reply({.type = FrameType::kReject,
         .code = static_cast<uint8_t>(code),
         .stream = key.stream,
         .epoch = key.epoch,
         .block = commit});
}

void InboundConnection::Reply(const FrameHeader& header) {
  const auto bytes = EncodeFrameHeader(header);
  replies_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// At once: what an answer tells of, the sender takes to have just arrived (LinkMeter), and the turn
// may go on for megabytes. Should it fail, the end of the turn says so, after what has come.
void InboundConnection::GrantWhatIsWorthAFrame() {
  if (GrantCredit(InboundGroup::Grant::kWorthAFrame)) WriteReplies().IgnoreError();
}

bool InboundConnection::GrantCredit(InboundGroup::Grant grant) {
  const auto credit =
      group_ == nullptr ? std::nullopt : group_->TakeGrant(grant, std::chrono::steady_clock::now());
  if (credit) Reply({.type = FrameType::kCredit, .frames = *credit});
  return credit.has_value();
}

}  // namespace tandem
