#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "transfer/framed/links.h"
#include "transfer/stream_key.h"
#include "transfer/token_bucket.h"
#include "transfer/transport.h"

namespace tandem {

// A frame whose turn has come.
struct NextFrame {
  uint64_t serial = 0;  // of the stream's opening
  FrameHeader header;   // without the payload's hash
  std::span<const std::byte> payload;
};

// The sending side toward one peer: the streams, what is left to send of each, and what the peer
// allows. Its connections ask it for their next frames and tell it the peer's answers; it does no
// I/O itself.
//
// One stream:
//   streaming -> finishing  Finish
//   finishing -> awaiting   all of its data is in the hands of connections: a commit on each of
//   them awaiting  -> finishing  the peer asked for extents that are missing: they come again any
//   awaiting  -> awaiting   nothing was answered for one to two renewals: the commits again
//   -> gone       acknowledged, rejected, DATA_LOSS after kMaxRounds, dropped
// Data frames of all connections take turns between streams, a frame each.
// Thread: the loop's.
class OutboundGroup {
 public:
  // The stream is over and no longer here.
  using StreamOver =
      std::function<void(StreamKey key, uint64_t serial, const absl::Status& status)>;
  struct Options {
    std::string peer;
    uint64_t id = 0;  // random, so that the peer tells groups apart
    uint32_t connections = 1;
    uint64_t max_bytes_per_second = 0;
  };
  // How often the peer may ask for what is missing of one stream.
  static constexpr int kMaxRounds = 8;

  OutboundGroup(Options options, std::shared_ptr<Link> link, StreamOver stream_over);
  ~OutboundGroup() { link_->Lost(); }

  const std::string& peer() const { return options_.peer; }
  uint32_t connections() const { return options_.connections; }
  Link& link() { return *link_; }

  void AddStream(StreamKey key, uint64_t serial, Duration renew_every, TimePoint now);
  // Without effect when the stream is not here.
  void Post(StreamKey key, std::span<const PostedExtent> extents);
  void Finish(StreamKey key, uint64_t frames);
  // Afterwards no payload of the stream is handed out any more; `unsent_bytes` of its payload that
  // connections had and did not send.
  void Drop(StreamKey key);
  void TakeBack(uint64_t unsent_bytes);

  // Whether it is data, if anything, that Next gives.
  bool NextIsData(uint32_t index) const { return control_[index].empty() && !turns_.empty(); }
  // Where it is: how large its payload is.
  uint64_t next_payload_bytes() const;
  // What connection `index` sends next; empty when there is nothing for it now.
  std::optional<NextFrame> Next(uint32_t index, TimePoint now);
  // Whether something waits for connection `index`, be it for the peer's credit alone.
  bool Waits(uint32_t index) const;

  // An answer of the peer. A status: it makes no sense, the connection must be closed.
  absl::Status OnReply(const FrameHeader& header, TimePoint now);

  // How long the peer has owed an answer and given none; zero: it owes none. Whoever answers
  // anything is there, so there is one clock for all connections: payload, a commit and a renewal
  // are answered each, payload also while it comes (InboundGroup).
  Duration silence(TimePoint now) const {
    return silent_since_ < now ? now - silent_since_ : Duration::zero();
  }
  TimePoint silent_since() const { return silent_since_; }  // kNoDeadline: it owes none
  absl::Status NoAnswer(TimePoint now) const;               // UNAVAILABLE: says for how long
  // Something else watches over what is under way now: what the peer owes it owes from here on.
  void Excuse(TimePoint now) {
    if (silent_since_ != kNoDeadline) silent_since_ = now;
  }

  // When OnTimer wants to be called: a renewal is due, or the rate allows another frame.
  TimePoint wake_at() const { return std::min(renew_at_, resume_at_); }
  void OnTimer(TimePoint now);

  // Whether connections other than the one that just had its turn may have something to do; once.
  bool has_news() const { return news_; }
  bool TakeNews() { return std::exchange(news_, false); }

 private:
  enum class Phase : uint8_t { kStreaming, kFinishing, kAwaiting };
  struct Stream {
    uint64_t serial = 0;
    Phase phase = Phase::kStreaming;
    std::vector<PostedExtent> posted;
    size_t next = 0;              // of posted
    std::vector<uint32_t> again;  // of posted: asked for again
    size_t next_again = 0;
    absl::flat_hash_map<uint64_t, uint32_t> places;  // of posted; made when first needed
    bool has_turn = false;
    uint64_t frames = 0;  // of its commit
    uint32_t first_commit = 0;
    int rounds = 0;
    Duration renew_every{};
    TimePoint renew_at = kNoDeadline;
    bool renewal_queued = false;
    bool unanswered = false;  // the latest commit, for a renewal's time

    bool has_data() const { return next < posted.size() || next_again < again.size(); }
  };

  void GiveTurn(StreamKey key, Stream& stream);
  const PostedExtent& TakeData(Stream& stream) const;
  // Of its payload, that no connection has been given yet.
  static uint64_t WaitingBytes(const Stream& stream);
  bool MaySend(uint64_t payload_bytes) const;
  uint64_t in_flight() const { return sent_ - (credit_ - window_); }
  void QueueCommits(StreamKey key, Stream& stream);
  void RepeatCommits(StreamKey key, Stream& stream);
  void QueueRenewal(StreamKey key, Stream& stream);
  void End(StreamKey key, const absl::Status& status);
  absl::Status TakeReply(const FrameHeader& header, TimePoint now);
  absl::Status OnAck(const FrameHeader& header);
  void OnReject(const FrameHeader& header);
  absl::Status OnCredit(const FrameHeader& header, TimePoint now);
  absl::Status OnResend(const FrameHeader& header);
  void SendAgain(StreamKey key, Stream& stream);

  const Options options_;
  const std::shared_ptr<Link> link_;
  const StreamOver stream_over_;
  TokenBucket bucket_;
  absl::flat_hash_map<StreamKey, Stream> streams_;
  std::deque<StreamKey> turns_;                 // streams with data, in the order of their turns
  std::vector<std::deque<NextFrame>> control_;  // per connection: before any data
  uint64_t window_ = 0;                         // the first credit: how much may be under way
  uint64_t credit_ = 0;   // bytes of payload that may have been sent since the start
  uint64_t sent_ = 0;     // that were handed to connections
  uint64_t waiting_ = 0;  // that were not yet, of all streams
  uint32_t commits_ = 0;
  TimePoint silent_since_ = kNoDeadline;
  TimePoint resume_at_ = kNoDeadline;  // when the rate allows what it has held back
  TimePoint renew_at_ = kNoDeadline;   // not after the earliest of all streams
  bool news_ = false;
};

}  // namespace tandem
