#include "transfer/framed/peer_streams.h"

#include <utility>

#include "base/status.h"

namespace tandem {
namespace {

using Phase = SendProgress::Phase;

uint64_t IndexKey(uint32_t layer, uint32_t block) { return uint64_t{layer} << 32 | block; }

}  // namespace

PeerStreams::PeerStreams(uint64_t connection_id, const SendRate& rate, std::shared_ptr<Link> link,
                         const OpenStreams& open, StreamOver stream_over)
    : link_(std::move(link)),
      open_(open),
      stream_over_(std::move(stream_over)),
      queue_(*link_, rate) {
  queue_.PushControl({.type = FrameType::kHello, .stream = connection_id, .block = 1}, nullptr);
}

PeerStreams::~PeerStreams() {
  for (const StreamPtr& stream : streams_) stream->progress.peer = nullptr;
  link_->Lost();
}

void PeerStreams::Add(const StreamPtr& stream, Duration renew_every, TimePoint now) {
  streams_.insert(stream);
  stream->progress.peer = this;
  link_->Count(&LinkStats::streams);
  if (renew_every <= Duration::zero()) return;
  stream->progress.renew_every = renew_every;
  stream->progress.renew_at = now + renew_every;
  renew_at_ = std::min(renew_at_, stream->progress.renew_at);
  // The first renewal is sent at once, since the first data may be long in coming.
  QueueRenewal(stream);
}

void PeerStreams::Post(const StreamPtr& stream, std::span<const PostedExtent> extents) {
  if (!IsHere(*stream)) return;
  auto& posted = stream->progress.posted;
  posted.insert(posted.end(), extents.begin(), extents.end());
  uint64_t bytes = 0;
  for (const PostedExtent& extent : extents) bytes += extent.payload.size();
  queue_.AddData(stream, bytes);
}

void PeerStreams::Finish(const StreamPtr& stream, uint64_t frames) {
  if (!IsHere(*stream)) return;
  stream->progress.frames = frames;
  stream->progress.phase = Phase::kFinishing;
  if (!stream->progress.has_data()) QueueCommit(stream);
}

void PeerStreams::Drop(OutgoingStream& stream) {
  if (!IsHere(stream)) return;
  queue_.Remove(stream);
  stream.progress.peer = nullptr;
  streams_.erase(stream.shared_from_this());
}

void PeerStreams::TakeBack(uint64_t bytes) {
  if (bytes == 0) return;
  queue_.TakeBack(bytes);
  if (queue_.in_flight() == 0) answer_timer_.Stop();
}

std::optional<NextFrame> PeerStreams::Next(TimePoint now) {
  std::optional<NextFrame> frame = queue_.Next(now);
  if (!frame) return frame;
  answer_timer_.Start(now);
  if (frame->header.type == FrameType::kRenew) frame->stream->progress.renewal_queued = false;
  if (frame->is_last_data && frame->stream->progress.phase == Phase::kFinishing) {
    QueueCommit(frame->stream);
  }
  return frame;
}

void PeerStreams::QueueCommit(const StreamPtr& stream) {
  ++commits_;
  SendProgress& progress = stream->progress;
  if (progress.first_commit == 0) progress.first_commit = commits_;
  progress.phase = Phase::kAwaiting;
  progress.unanswered = false;
  queue_.PushControl({.type = FrameType::kCommit,
                      .stream = stream->key().stream,
                      .epoch = stream->key().epoch,
                      .block = commits_,
                      .frames = progress.frames},
                     stream);
}

// At most one renewal of a stream waits, so a peer that takes nothing does not fill the queue.
void PeerStreams::QueueRenewal(const StreamPtr& stream) {
  if (std::exchange(stream->progress.renewal_queued, true)) return;
  queue_.PushControl(
      {.type = FrameType::kRenew, .stream = stream->key().stream, .epoch = stream->key().epoch},
      stream);
}

void PeerStreams::End(OutgoingStream& stream, const absl::Status& status) {
  const StreamPtr kept = stream.shared_from_this();
  Drop(stream);
  if (!status.ok()) link_->Count(&LinkStats::streams_failed);
  stream_over_(stream, status);
}

PeerStreams::StreamPtr PeerStreams::Find(const FrameHeader& answer) const {
  StreamPtr stream = open_.Find(KeyOf(answer));
  return stream != nullptr && IsHere(*stream) ? stream : nullptr;
}

absl::Status PeerStreams::OnReply(const FrameHeader& header, TimePoint now) {
  const absl::Status status = TakeReply(header, now);
  answer_timer_.Stop();
  if (queue_.in_flight() > 0) answer_timer_.Start(now);
  return status;
}

absl::Status PeerStreams::TakeReply(const FrameHeader& header, TimePoint now) {
  switch (header.type) {
    case FrameType::kAck:
      return OnAck(header);
    case FrameType::kReject:
      OnReject(header);
      return absl::OkStatus();
    case FrameType::kCredit:
      return queue_.TakeCredit(header.frames, now);
    case FrameType::kResend:
      return OnResend(header);
    default:
      return InvalidArgument("frame of type {} from a receiver", static_cast<int>(header.type));
  }
}

absl::Status PeerStreams::OnAck(const FrameHeader& header) {
  if (header.block == 0 || header.block > commits_) {
    return InvalidArgument("stream {} was acknowledged before its commit", header.stream);
  }
  const StreamPtr stream = Find(header);
  if (stream == nullptr) return absl::OkStatus();
  // Commits below the stream's first one belong to an earlier opening of the same key.
  const uint32_t first = stream->progress.first_commit;
  if (first != 0 && header.block >= first) End(*stream, absl::OkStatus());
  return absl::OkStatus();
}

// A reject names the commit that it answers, or 0 when it answers none.
void PeerStreams::OnReject(const FrameHeader& header) {
  const StreamPtr stream = Find(header);
  if (stream == nullptr) return;
  const uint32_t first = stream->progress.first_commit;
  const bool is_of_earlier_opening = header.block != 0 && (first == 0 || header.block < first);
  if (is_of_earlier_opening) return;
  End(*stream, MakeStatus(static_cast<absl::StatusCode>(header.code), "{} rejected stream {}",
                          peer(), header.stream));
}

absl::Status PeerStreams::OnResend(const FrameHeader& header) {
  const StreamPtr stream = Find(header);
  // Ignores an answer to an earlier opening of the same key, which may find the stream in another
  // phase.
  if (stream == nullptr || stream->progress.phase != Phase::kAwaiting) return absl::OkStatus();
  SendProgress& progress = stream->progress;
  if (header.frames > progress.posted.size()) {
    return InvalidArgument("stream {}: {} frames are asked for again, it has {}", header.stream,
                           header.frames, progress.posted.size());
  }
  if (progress.index.empty()) {
    for (uint32_t i = 0; i < progress.posted.size(); ++i) {
      progress.index[IndexKey(progress.posted[i].layer, progress.posted[i].block)] = i;
    }
  }
  const auto missing = progress.index.find(IndexKey(header.layer, header.block));
  if (missing == progress.index.end()) {
    End(*stream, DataLoss("{} misses layer {} block {} of stream {}, which was never posted",
                          peer(), header.layer, header.block, header.stream));
    return absl::OkStatus();
  }
  progress.resend.push_back(missing->second);
  if (progress.resend.size() < header.frames) return absl::OkStatus();
  if (++progress.rounds > kMaxRounds) {
    End(*stream, DataLoss("{} misses {} extents of stream {} after they were sent {} times", peer(),
                          progress.resend.size(), header.stream, progress.rounds));
    return absl::OkStatus();
  }
  link_->Count(&LinkStats::resent_frames, progress.resend.size());
  progress.phase = Phase::kFinishing;
  queue_.AddData(stream, progress.UnsentBytes());
  return absl::OkStatus();
}

void PeerStreams::OnTimer(TimePoint now) {
  if (queue_.resume_at() <= now) queue_.Resume();
  if (renew_at_ > now) return;
  renew_at_ = kNoDeadline;
  for (const StreamPtr& stream : streams_) {
    SendProgress& progress = stream->progress;
    if (progress.renew_at <= now) {
      // A commit that was lost on the way is repeated rather than waited for until the deadline:
      // the receiver answers as often as it is asked. While a renewal is still queued the peer
      // takes nothing, and would not take another commit either.
      const bool may_repeat = progress.phase == Phase::kAwaiting && !progress.renewal_queued;
      if (may_repeat && std::exchange(progress.unanswered, true)) QueueCommit(stream);
      QueueRenewal(stream);
      progress.renew_at = now + progress.renew_every;
    }
    renew_at_ = std::min(renew_at_, progress.renew_at);
  }
}

}  // namespace tandem
