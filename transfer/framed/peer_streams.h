#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "transfer/framed/links.h"
#include "transfer/framed/outgoing_stream.h"
#include "transfer/framed/send_queue.h"

namespace tandem {

// How long a peer has owed an answer. A peer that answers anything is alive, so one clock serves
// all that is under way: payload, commits and renewals are each answered, payload also while it
// arrives (ReceiveCredit).
class AnswerTimer {
 public:
  void Start(TimePoint now) { since_ = std::min(since_, now); }
  void Stop() { since_ = kNoDeadline; }
  // Restarts the time of an answer that the peer owes, because something else watches over what is
  // under way.
  void Reset(TimePoint now) {
    if (since_ != kNoDeadline) since_ = now;
  }
  TimePoint since() const { return since_; }  // kNoDeadline when the peer owes nothing
  Duration silence(TimePoint now) const { return since_ < now ? now - since_ : Duration::zero(); }

 private:
  TimePoint since_ = kNoDeadline;
};

// The streams toward one peer and their states. The connection asks for the next frame and passes
// the peer's answers on.
//
// One stream:
//   streaming -> finishing   Finish was called.
//   finishing -> awaiting    The connection has taken all data; a commit follows it.
//   awaiting  -> finishing   The peer asked for missing extents, which are sent again.
//   awaiting  -> awaiting    The commit got no answer for one to two renewals and is repeated.
//   any state -> gone        Acknowledged, rejected, dropped, or DATA_LOSS after kMaxRounds.
//
// Thread: the loop's.
class PeerStreams {
 public:
  using StreamPtr = std::shared_ptr<OutgoingStream>;
  // Called when a stream is over and was removed.
  using StreamOver = std::function<void(OutgoingStream& stream, const absl::Status& status)>;
  // How often the peer may ask for what is missing of one stream.
  static constexpr int kMaxRounds = 8;

  // The hello carries `connection_id`, which is random and not 0. `open` outlives this and has every
  // stream that is added, until it has ended.
  PeerStreams(uint64_t connection_id, const SendRate& rate, std::shared_ptr<Link> link,
              const OpenStreams& open, StreamOver stream_over);
  ~PeerStreams();

  const std::string& peer() const { return link_->peer(); }
  Link& link() { return *link_; }
  AnswerTimer& answer_timer() { return answer_timer_; }
  SendQueue& queue() { return queue_; }
  const absl::flat_hash_set<StreamPtr>& streams() const { return streams_; }

  void Add(const StreamPtr& stream, Duration renew_every, TimePoint now);
  // Post, Finish and Drop have no effect on a stream that was not added or has been removed.
  void Post(const StreamPtr& stream, std::span<const PostedExtent> extents);
  void Finish(const StreamPtr& stream, uint64_t frames);
  // Removes the stream: no payload of it is handed out any more.
  void Drop(OutgoingStream& stream);
  // Takes back `bytes` of payload that Next gave out and that will not be sent.
  void TakeBack(uint64_t bytes);

  // The frame that the connection sends next; empty when there is none for now.
  std::optional<NextFrame> Next(TimePoint now);
  // An answer of the peer. An error means that it makes no sense: the connection must be closed.
  absl::Status OnReply(const FrameHeader& header, TimePoint now);

  // The time at which OnTimer is due: for a renewal, or when the rate allows another frame.
  TimePoint wake_at() const { return std::min(renew_at_, queue_.resume_at()); }
  void OnTimer(TimePoint now);

 private:
  bool IsHere(const OutgoingStream& stream) const { return stream.progress.peer == this; }
  // The stream that an answer is about; null when it has been dropped meanwhile.
  StreamPtr Find(const FrameHeader& answer) const;
  void QueueCommit(const StreamPtr& stream);
  void QueueRenewal(const StreamPtr& stream);
  void End(OutgoingStream& stream, const absl::Status& status);
  absl::Status TakeReply(const FrameHeader& header, TimePoint now);
  absl::Status OnAck(const FrameHeader& header);
  void OnReject(const FrameHeader& header);
  absl::Status OnResend(const FrameHeader& header);

  const std::shared_ptr<Link> link_;
  const OpenStreams& open_;
  const StreamOver stream_over_;
  SendQueue queue_;
  AnswerTimer answer_timer_;
  absl::flat_hash_set<StreamPtr> streams_;
  uint32_t commits_ = 0;              // the number of the latest commit of any stream
  TimePoint renew_at_ = kNoDeadline;  // no later than the earliest renewal of all streams
};

}  // namespace tandem
