#include "transfer/framed/outbound_group.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace tandem {
namespace {

uint64_t PlaceKey(uint32_t layer, uint32_t block) { return uint64_t{layer} << 32 | block; }

}  // namespace

OutboundGroup::OutboundGroup(Options options, std::shared_ptr<Link> link, StreamOver stream_over)
    : options_(std::move(options)),
      link_(std::move(link)),
      stream_over_(std::move(stream_over)),
      bucket_(options_.max_bytes_per_second),
      control_(options_.connections) {
  for (uint32_t index = 0; index < options_.connections; ++index) {
    control_[index].push_back({.header = {.type = FrameType::kHello,
                                          .stream = options_.id,
                                          .layer = index,
                                          .block = options_.connections}});
  }
}

void OutboundGroup::AddStream(StreamKey key, uint64_t serial, Duration renew_every, TimePoint now) {
  Stream& stream = streams_[key];
  stream = Stream{.serial = serial, .renew_every = renew_every};
  link_->StreamOpened();
  if (renew_every <= Duration::zero()) return;
  QueueRenewal(key, stream);  // its first data may be long in coming
  stream.renew_at = now + renew_every;
  renew_at_ = std::min(renew_at_, stream.renew_at);
}

void OutboundGroup::Post(StreamKey key, std::span<const PostedExtent> extents) {
  const auto place = streams_.find(key);
  if (place == streams_.end()) return;
  auto& posted = place->second.posted;
  posted.insert(posted.end(), extents.begin(), extents.end());
  for (const PostedExtent& extent : extents) waiting_ += extent.payload.size();
  GiveTurn(key, place->second);
}

void OutboundGroup::Finish(StreamKey key, uint64_t frames) {
  const auto place = streams_.find(key);
  if (place == streams_.end()) return;
  Stream& stream = place->second;
  stream.frames = frames;
  stream.phase = Phase::kFinishing;
  if (!stream.has_data()) QueueCommits(key, stream);
}

void OutboundGroup::Drop(StreamKey key) {
  const auto place = streams_.find(key);
  if (place == streams_.end()) return;
  if (const uint64_t bytes = WaitingBytes(place->second); bytes > 0) {
    waiting_ -= bytes;
    link_->TakenBack(0);
  }
  streams_.erase(place);
  std::erase(turns_, key);
}

uint64_t OutboundGroup::WaitingBytes(const Stream& stream) {
  uint64_t bytes = 0;
  for (size_t i = stream.next; i < stream.posted.size(); ++i) {
    bytes += stream.posted[i].payload.size();
  }
  for (size_t i = stream.next_again; i < stream.again.size(); ++i) {
    bytes += stream.posted[stream.again[i]].payload.size();
  }
  return bytes;
}

void OutboundGroup::TakeBack(uint64_t unsent_bytes) {
  if (unsent_bytes == 0) return;
  sent_ -= unsent_bytes;
  news_ = true;
  if (in_flight() == 0) silent_since_ = kNoDeadline;
  link_->TakenBack(unsent_bytes);
}

void OutboundGroup::GiveTurn(StreamKey key, Stream& stream) {
  news_ = true;
  if (std::exchange(stream.has_turn, true)) return;
  turns_.push_back(key);
}

const PostedExtent& OutboundGroup::TakeData(Stream& stream) const {
  if (stream.next < stream.posted.size()) return stream.posted[stream.next++];
  return stream.posted[stream.again[stream.next_again++]];
}

// A payload larger than the window goes alone.
bool OutboundGroup::MaySend(uint64_t payload_bytes) const {
  return window_ > 0 && (in_flight() == 0 || sent_ + payload_bytes <= credit_);
}

uint64_t OutboundGroup::next_payload_bytes() const {
  const Stream& stream = streams_.at(turns_.front());
  const bool fresh = stream.next < stream.posted.size();
  return stream.posted[fresh ? stream.next : stream.again[stream.next_again]].payload.size();
}

std::optional<NextFrame> OutboundGroup::Next(uint32_t index, TimePoint now) {
  if (auto& control = control_[index]; !control.empty()) {
    NextFrame frame = control.front();
    control.pop_front();
    // Of several hellos the first is answered.
    if (frame.header.type != FrameType::kHello || window_ == 0) {
      silent_since_ = std::min(silent_since_, now);
    }
    if (frame.header.type == FrameType::kRenew) {
      const auto place = streams_.find(KeyOf(frame.header));
      if (place != streams_.end()) place->second.renewal_queued = false;
    }
    return frame;
  }
  if (turns_.empty()) return std::nullopt;
  const uint64_t payload_bytes = next_payload_bytes();
  if (!MaySend(payload_bytes)) return std::nullopt;
  if (!bucket_.Take(now, payload_bytes)) {
    resume_at_ = bucket_.ready_at(now);
    return std::nullopt;
  }
  const StreamKey key = turns_.front();
  turns_.pop_front();
  Stream& stream = streams_.at(key);
  const PostedExtent& posted = TakeData(stream);
  waiting_ -= payload_bytes;
  sent_ += payload_bytes;
  link_->Sent(payload_bytes);
  silent_since_ = std::min(silent_since_, now);
  NextFrame frame = {.serial = stream.serial,
                     .header = {.type = FrameType::kData,
                                .stream = key.stream,
                                .epoch = key.epoch,
                                .layer = posted.layer,
                                .block = posted.block,
                                .payload_bytes = static_cast<uint32_t>(payload_bytes)},
                     .payload = posted.payload};
  if (stream.has_data()) {
    turns_.push_back(key);
  } else {
    stream.has_turn = false;
    if (stream.phase == Phase::kFinishing) QueueCommits(key, stream);
  }
  return frame;
}

bool OutboundGroup::Waits(uint32_t index) const {
  // What the rate alone holds back is not waited for: it will come.
  return !control_[index].empty() || (!turns_.empty() && resume_at_ == kNoDeadline);
}

// On each connection behind the data that it took, so that with the last of them all has come.
void OutboundGroup::QueueCommits(StreamKey key, Stream& stream) {
  ++commits_;
  if (stream.first_commit == 0) stream.first_commit = commits_;
  stream.phase = Phase::kAwaiting;
  stream.unanswered = false;
  for (auto& control : control_) {
    control.push_back({.serial = stream.serial,
                       .header = {.type = FrameType::kCommit,
                                  .stream = key.stream,
                                  .epoch = key.epoch,
                                  .block = commits_,
                                  .frames = stream.frames}});
  }
  news_ = true;
}

absl::Status OutboundGroup::NoAnswer(TimePoint now) const {
  return Unavailable("the peer has answered nothing for {:.1f} s, {} bytes are on their way",
                     std::chrono::duration<double>(silence(now)).count(), in_flight());
}

void OutboundGroup::End(StreamKey key, const absl::Status& status) {
  const uint64_t serial = streams_.at(key).serial;
  Drop(key);
  if (!status.ok()) link_->StreamFailed();
  stream_over_(key, serial, status);
}

absl::Status OutboundGroup::OnReply(const FrameHeader& header, TimePoint now) {
  const absl::Status status = TakeReply(header, now);
  silent_since_ = in_flight() > 0 ? now : kNoDeadline;
  return status;
}

absl::Status OutboundGroup::TakeReply(const FrameHeader& header, TimePoint now) {
  switch (header.type) {
    case FrameType::kAck:
      return OnAck(header);
    case FrameType::kReject:
      OnReject(header);
      return absl::OkStatus();
    case FrameType::kCredit:
      return OnCredit(header, now);
    case FrameType::kResend:
      return OnResend(header);
    case FrameType::kData:
    case FrameType::kCommit:
    case FrameType::kHello:
    case FrameType::kRenew:
    case FrameType::kReference:
    case FrameType::kAnnounce:
      break;
  }
  return InvalidArgument("frame of type {} from a receiver", static_cast<int>(header.type));
}

absl::Status OutboundGroup::OnAck(const FrameHeader& header) {
  if (header.block == 0 || header.block > commits_) {
    return InvalidArgument("stream {} was acknowledged before its commit", header.stream);
  }
  const auto place = streams_.find(KeyOf(header));
  if (place == streams_.end()) return absl::OkStatus();  // dropped meanwhile
  const Stream& stream = place->second;
  // An answer to an opening before this one says nothing of this one.
  if (stream.first_commit == 0 || header.block < stream.first_commit) return absl::OkStatus();
  End(KeyOf(header), absl::OkStatus());
  return absl::OkStatus();
}

void OutboundGroup::OnReject(const FrameHeader& header) {
  const StreamKey key = KeyOf(header);
  const auto place = streams_.find(key);
  if (place == streams_.end()) return;  // dropped meanwhile
  // An answer to the commit of an opening before this one.
  if (header.block != 0 && header.block < place->second.first_commit) return;
  if (header.block != 0 && place->second.first_commit == 0) return;
  End(key, MakeStatus(static_cast<absl::StatusCode>(header.code), "{} rejected stream {}",
                      options_.peer, key.stream));
}

absl::Status OutboundGroup::OnCredit(const FrameHeader& header, TimePoint now) {
  if (window_ == 0) {
    if (header.frames == 0) return InvalidArgument("a first credit of nothing");
    window_ = credit_ = header.frames;
    news_ = true;
    return absl::OkStatus();
  }
  // More than was sent came where a frame came twice.
  const uint64_t credit = std::min(header.frames, window_ + sent_);
  // Those of several connections may overtake one another.
  if (credit <= credit_) return absl::OkStatus();
  const uint64_t consumed = credit - credit_;
  credit_ = credit;
  link_->Consumed(now, consumed, in_flight() + waiting_);
  if (!turns_.empty()) news_ = true;
  return absl::OkStatus();
}

absl::Status OutboundGroup::OnResend(const FrameHeader& header) {
  const StreamKey key = KeyOf(header);
  const auto place = streams_.find(key);
  if (place == streams_.end() || place->second.phase != Phase::kAwaiting) {
    return absl::OkStatus();  // an answer to an opening before this one, or dropped
  }
  Stream& stream = place->second;
  if (header.frames > stream.posted.size()) {
    return InvalidArgument("stream {}: {} frames are asked for again, it has {}", key.stream,
                           header.frames, stream.posted.size());
  }
  if (stream.places.size() == 0) {
    for (uint32_t i = 0; i < stream.posted.size(); ++i) {
      stream.places[PlaceKey(stream.posted[i].layer, stream.posted[i].block)] = i;
    }
  }
  const auto posted = stream.places.find(PlaceKey(header.layer, header.block));
  if (posted == stream.places.end()) {
    End(key, DataLoss("{} misses layer {} block {} of stream {}, which was never posted",
                      options_.peer, header.layer, header.block, key.stream));
    return absl::OkStatus();
  }
  if (stream.next_again == stream.again.size()) {  // the first of this answer
    stream.again.clear();
    stream.next_again = 0;
  }
  stream.again.push_back(posted->second);
  waiting_ += stream.posted[posted->second].payload.size();
  if (stream.again.size() >= header.frames) SendAgain(key, stream);
  return absl::OkStatus();
}

void OutboundGroup::SendAgain(StreamKey key, Stream& stream) {
  if (++stream.rounds > kMaxRounds) {
    return End(key, DataLoss("{} misses {} extents of stream {} after they were sent {} times",
                             options_.peer, stream.again.size(), key.stream, stream.rounds));
  }
  link_->Resent(stream.again.size());
  stream.phase = Phase::kFinishing;
  GiveTurn(key, stream);
}

void OutboundGroup::OnTimer(TimePoint now) {
  if (resume_at_ <= now) {
    resume_at_ = kNoDeadline;
    news_ = true;
  }
  if (renew_at_ > now) return;
  renew_at_ = kNoDeadline;
  for (auto& [key, stream] : streams_) {
    if (stream.renew_at <= now) {
      RepeatCommits(key, stream);
      QueueRenewal(key, stream);
      stream.renew_at = now + stream.renew_every;
    }
    renew_at_ = std::min(renew_at_, stream.renew_at);
  }
}

// What was lost on the way is not waited for until the deadline: the receiver answers as often as
// it is asked. Not while a renewal waits: then the peer takes nothing, the commit neither.
void OutboundGroup::RepeatCommits(StreamKey key, Stream& stream) {
  if (stream.phase != Phase::kAwaiting || stream.renewal_queued) return;
  if (std::exchange(stream.unanswered, true)) QueueCommits(key, stream);
}

// At most one waits: a peer that takes nothing gets no heap of them.
void OutboundGroup::QueueRenewal(StreamKey key, Stream& stream) {
  if (std::exchange(stream.renewal_queued, true)) return;
  control_.front().push_back(
      {.serial = stream.serial,
       .header = {.type = FrameType::kRenew, .stream = key.stream, .epoch = key.epoch}});
  news_ = true;
}

}  // namespace tandem
