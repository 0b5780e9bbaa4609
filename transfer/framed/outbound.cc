#include "transfer/framed/outbound.h"

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "base/status.h"

namespace tandem {
namespace {

// A payload is hashed when its frame joins the batch and sent soon after, out of the cache.
constexpr size_t kBatchBytes = 512 << 10;
constexpr size_t kBatchFrames = 64;
// With slots each batch waits once for the device: worth more at a time.
constexpr size_t kStagedBatchBytes = 1 << 20;
// With a lane the batch has references: as many as pay for one wait for the device.
constexpr size_t kLaneBatchPayloads = 512;
constexpr size_t kMaxParts = 1024;  // of one write
// Answers are small and may come by the thousand.
constexpr size_t kReplyBytes = 4 << 10;

}  // namespace

OutboundConnection::OutboundConnection(OutboundGroup& group, uint32_t index,
                                       std::unique_ptr<ByteChannel> channel,
                                       OutboundStaging* staging, uint64_t id,
                                       TransportCounters& counters, const Timeouts& timeouts)
    : group_(group),
      index_(index),
      channel_(std::move(channel)),
      staging_(staging),
      id_(id),
      counters_(counters),
      timeouts_(timeouts),
      reader_(*this),
      last_progress_(std::chrono::steady_clock::now()),
      deadline_(last_progress_ + timeouts_.connect) {}

void OutboundConnection::OnClosed(const absl::Status&) {
  if (staging_ != nullptr) staging_->Forget(id_);
}

void OutboundConnection::DropStream(StreamKey key) {
  // What a lane has a copy of is sent like what was sent a moment ago.
  const bool keeps_copies = channel_->lane() != nullptr && channel_->lane()->keeps_copies();
  uint64_t unsent_bytes = 0;
  std::erase_if(batch_, [&](const OutFrame& frame) {
    // What is no data reads no payload, and every connection must have the same commits.
    const bool unsent = BringsPayload(frame.fields) && KeyOf(frame.fields) == key &&
                        frame.sent == 0 && !keeps_copies;
    if (unsent) {
      batch_bytes_ -= frame.left();
      unsent_bytes += frame.brought_bytes();
    }
    return unsent;
  });
  group_.TakeBack(unsent_bytes);
  if (batch_.empty()) return;
  if (unsent_bytes > 0) CountPayload();
  OutFrame& half_sent = batch_.front();
  if (KeyOf(half_sent.fields) != key || half_sent.slot || !half_sent.owned.empty()) return;
  if (half_sent.payload.empty()) return;
  half_sent.owned.assign(half_sent.payload.begin(), half_sent.payload.end());
  half_sent.payload = half_sent.owned;
}

absl::StatusOr<Turn> OutboundConnection::Advance() {
  if (!established_) {
    ASSIGN_OR_RETURN(established_, channel_->Establish());
    if (!established_) return Turn::kDone;
    if (index_ == 0) group_.link().Connected();
  }
  const absl::StatusOr<Turn> turn = ReadAndSend();
  if (PayloadLane* const lane = channel_->lane(); lane != nullptr && lane->sending()) {
    group_.Excuse(std::chrono::steady_clock::now());
  }
  CountZeroCopy();
  UpdateDeadline();
  return turn;
}

absl::StatusOr<Turn> OutboundConnection::ReadAndSend() {
  RETURN_IF_ERROR(ReadReplies());
  GiveSlotsBack();
  absl::StatusOr<Turn> turn = Send();
  // A peer that closes says why before: that is still to be read.
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
  }
}

absl::StatusOr<Turn> OutboundConnection::Send() {
  for (size_t total = 0; total < kBytesPerTurn;) {
    RETURN_IF_ERROR(FillBatch());
    if (batch_.empty()) return FlushChannel();
    ASSIGN_OR_RETURN(const size_t count, SendBatch());
    if (count == 0) return Turn::kDone;
    total += TakeSent(count);
    GiveSlotsBack();
  }
  return Turn::kMore;
}

// The channel may hold bytes that it took before.
absl::StatusOr<Turn> OutboundConnection::FlushChannel() {
  if (channel_->wants_output()) RETURN_IF_ERROR(channel_->Write({}).status());
  return Turn::kDone;
}

absl::Status OutboundConnection::FillBatch() {
  const TimePoint now = std::chrono::steady_clock::now();
  lacks_room_ = false;
  PayloadLane* const lane = channel_->lane();
  return lane == nullptr ? FillFromBytes(now) : FillFromLane(*lane, now);
}

absl::Status OutboundConnection::FillFromBytes(TimePoint now) {
  const size_t batch_bytes = staging_ == nullptr ? kBatchBytes : kStagedBatchBytes;
  const size_t first = batch_.size();
  while (batch_bytes_ < batch_bytes && batch_.size() < kBatchFrames && TakeFrame(now)) {
  }
  RETURN_IF_ERROR(CopyToSlots(first));
  for (size_t i = first; i < batch_.size(); ++i) {
    OutFrame& frame = batch_[i];
    if (!frame.payload.empty()) frame.fields.payload_hash = Hash64(frame.payload);
  }
  Encode(first);
  return absl::OkStatus();
}

// References in the place of payloads, all of them offered at once; another batch when they are
// out.
absl::Status OutboundConnection::FillFromLane(PayloadLane& lane, TimePoint now) {
  if (!batch_.empty()) return absl::OkStatus();
  const PayloadLane::Room room = lane.room();
  const size_t most = std::min(room.payloads, kLaneBatchPayloads);
  size_t bytes = 0;
  offered_.clear();
  while (batch_.size() < kMaxParts - 1) {
    if (group_.NextIsData(index_)) {
      lacks_room_ = room.payloads == 0 && !room.peer_holds_it;
      if (offered_.size() >= most || bytes >= room.enough_bytes) break;
      if (bytes + group_.next_payload_bytes() > room.bytes) break;
    }
    std::optional<NextFrame> frame = group_.Next(index_, now);
    if (!frame) break;
    batch_.push_back({.fields = frame->header});
    if (frame->header.type != FrameType::kData) continue;
    batch_.back().fields.type = FrameType::kReference;
    offered_.push_back({.bytes = frame->payload});
    bytes += frame->payload.size();
  }
  if (!offered_.empty()) RETURN_IF_ERROR(Offer(lane));
  batch_bytes_ = batch_.size() * kFrameHeaderBytes;
  Encode(0);
  return absl::OkStatus();
}

absl::Status OutboundConnection::Offer(PayloadLane& lane) {
  ASSIGN_OR_RETURN(const uint32_t announced, lane.Offer(offered_));
  auto offered = offered_.begin();
  for (OutFrame& frame : batch_) {
    if (!BringsPayload(frame.fields)) continue;
    frame.fields.payload_hash = offered->hash;
    frame.fields.place = offered->place;
    ++offered;
  }
  if (announced == 0) return absl::OkStatus();
  // A hello goes before it.
  const auto first = std::ranges::find_if(
      batch_, [](const OutFrame& frame) { return BringsPayload(frame.fields); });
  batch_.insert(first, {.fields = {.type = FrameType::kAnnounce, .payload_bytes = announced}});
  return absl::OkStatus();
}

void OutboundConnection::Encode(size_t first) {
  bool has_commit = false;
  for (size_t i = first; i < batch_.size(); ++i) {
    batch_[i].header = EncodeFrameHeader(batch_[i].fields);
    has_commit |= batch_[i].fields.type == FrameType::kCommit;
  }
  if (has_commit) CountPayload();
}

// The slot first: what the group has given counts as sent.
bool OutboundConnection::TakeFrame(TimePoint now) {
  StagedSlot slot;
  if (staging_ != nullptr && group_.NextIsData(index_)) {
    slot = staging_->Take(id_, num_slots_held());
    lacks_room_ = !slot;
    if (lacks_room_) return false;
  }
  std::optional<NextFrame> frame = group_.Next(index_, now);
  if (!frame) return false;
  batch_.push_back({.fields = frame->header, .payload = frame->payload, .slot = std::move(slot)});
  batch_bytes_ += batch_.back().left();
  return true;
}

size_t OutboundConnection::num_slots_held() const {
  const auto in_batch =
      std::ranges::count_if(batch_, [](const OutFrame& frame) { return bool{frame.slot}; });
  return sent_slots_.size() + static_cast<size_t>(in_batch);
}

// Once it returns, nothing of the caller's memory is read any more.
absl::Status OutboundConnection::CopyToSlots(size_t first) {
  absl::Status queued;
  bool has_copies = false;
  for (size_t i = first; i < batch_.size(); ++i) {
    OutFrame& frame = batch_[i];
    if (!frame.slot) continue;
    has_copies = true;
    const std::span<std::byte> staged = frame.slot.bytes().first(frame.payload.size());
    if (queued.ok()) queued = staging_->pool().Copy(staged, frame.payload);
    frame.payload = staged;
  }
  if (!has_copies) return absl::OkStatus();
  const absl::Status done = staging_->pool().Synchronize();
  return queued.ok() ? done : queued;
}

// Tells the commits in the batch how much payload goes before them: known once nothing before them
// can be dropped, so counted again when something was.
void OutboundConnection::CountPayload() {
  uint64_t before = payload_bytes_;
  for (OutFrame& frame : batch_) {
    if (frame.fields.type == FrameType::kCommit && frame.sent == 0) {
      frame.fields.sent_bytes = before;
      frame.header = EncodeFrameHeader(frame.fields);
    }
    before += frame.brought_bytes();
  }
}

void OutboundConnection::CountZeroCopy() {
  const ByteChannel::ZeroCopyUse use = channel_->zero_copy();
  if (use.writes > zero_copy_writes_) {
    group_.link().SentWithoutCopy(use.writes - zero_copy_writes_);
    zero_copy_writes_ = use.writes;
  }
  if (use.gave_up.empty() || std::exchange(gave_up_zero_copy_, true)) return;
  group_.link().GaveUpZeroCopy(use.gave_up);
}

// How many bytes the channel took; 0: none for now.
absl::StatusOr<size_t> OutboundConnection::SendBatch() {
  std::array<iovec, kMaxParts> parts;
  size_t num_parts = 0;
  const auto add = [&](std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    parts[num_parts++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  };
  for (const OutFrame& frame : batch_) {
    const size_t header_sent = std::min(frame.sent, frame.header.size());
    add(std::span(frame.header).subspan(header_sent));
    add(frame.payload.subspan(frame.sent - header_sent));
  }
  return channel_->Write(std::span(parts).first(num_parts));
}

// The channel took `count` bytes; with what a lane brings beside them.
size_t OutboundConnection::TakeSent(size_t count) {
  size_t moved = count;
  written_ += count;
  batch_bytes_ -= count;
  const TimePoint now = std::chrono::steady_clock::now();
  while (count > 0) {
    OutFrame& frame = batch_.front();
    // Renewals go out, and are answered, however stuck the rest may be: they are no progress.
    if (frame.fields.type != FrameType::kRenew) last_progress_ = now;
    const size_t taken = std::min(count, frame.left());
    frame.sent += taken;
    count -= taken;
    if (frame.left() > 0) break;
    payload_bytes_ += frame.brought_bytes();
    if (frame.fields.type == FrameType::kReference) moved += frame.fields.payload_bytes;
    if (frame.slot) {
      sent_slots_.push_back({.slot = std::move(frame.slot), .end = written_ - count});
    }
    batch_.pop_front();
  }
  counters_.sent += moved;
  return moved;
}

void OutboundConnection::GiveSlotsBack() {
  const uint64_t done = written_ - channel_->held_bytes();
  while (!sent_slots_.empty() && sent_slots_.front().end <= done) {
    sent_slots_.pop_front();
    last_progress_ = std::chrono::steady_clock::now();
  }
}

void OutboundConnection::UpdateDeadline() {
  const TimePoint now = std::chrono::steady_clock::now();
  // That there is no slot is no fault of this peer's.
  const bool waits =
      !batch_.empty() || !sent_slots_.empty() || (group_.Waits(index_) && !lacks_room_);
  if (!std::exchange(waited_, waits)) last_progress_ = now;
  deadline_ = waits ? last_progress_ + timeouts_.stall : kNoDeadline;
}

absl::StatusOr<std::span<std::byte>> OutboundConnection::Prepare(const FrameHeader&) {
  got_data_ = true;
  return Cancelled("nothing is received here");
}

absl::Status OutboundConnection::Control(const FrameHeader& header) {
  const TimePoint now = std::chrono::steady_clock::now();
  const bool repeated = header.type == FrameType::kCredit && header.frames <= credit_;
  if (header.type == FrameType::kCredit) credit_ = std::max(credit_, header.frames);
  if (!repeated) last_progress_ = now;
  return group_.OnReply(header, now);
}

}  // namespace tandem
