#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "base/clock.h"
#include "transfer/framed/links.h"
#include "transfer/framed/outgoing_stream.h"
#include "transfer/framed/send_rate.h"

namespace tandem {

// The frame that a connection sends next.
struct NextFrame {
  FrameHeader header;  // without the payload's hash
  std::span<const std::byte> payload;
  std::shared_ptr<OutgoingStream> stream;  // null for a hello
  bool is_last_data = false;               // the stream has no more data for now
};

// The sender's account of the credit that a peer gives: how many bytes of payload may be under way
// toward the peer.
class SendWindow {
 public:
  bool is_open() const { return size_ > 0; }
  uint64_t in_flight() const { return sent_ - (credit_ - size_); }
  // A payload that is larger than the window may go alone.
  bool Allows(uint64_t bytes) const {
    return is_open() && (in_flight() == 0 || sent_ + bytes <= credit_);
  }
  void Sent(uint64_t bytes) { sent_ += bytes; }
  void TakeBack(uint64_t bytes) { sent_ -= bytes; }
  // Takes the credit of a credit frame. Returns how many bytes the peer has consumed since the
  // latest frame.
  uint64_t Raise(uint64_t credit);

 private:
  uint64_t size_ = 0;    // bytes; the first credit
  uint64_t credit_ = 0;  // bytes of payload that may have been sent since the start
  uint64_t sent_ = 0;    // bytes of payload that were handed to the connection
};

// The frames that go to one peer, in their order: control frames first, then data frames, for which
// the streams with data take turns, one frame each. Data waits for the peer's credit and for the
// rate of the link. It does no I/O.
// Thread: the loop's.
class SendQueue {
 public:
  SendQueue(Link& link, const SendRate& rate) : link_(link), bucket_(rate) {}

  void PushControl(const FrameHeader& header, std::shared_ptr<OutgoingStream> stream);
  // `bytes` of payload wait from now on, and the stream takes turns unless it does already.
  void AddData(const std::shared_ptr<OutgoingStream>& stream, uint64_t bytes);
  // Removes a stream, whose data is not sent any more.
  void Remove(OutgoingStream& stream);
  // Takes back `bytes` of payload that Next gave out but that were not sent after all.
  void TakeBack(uint64_t bytes);

  // Whether the next frame is data; next_payload_bytes is then its size.
  bool NextIsData() const { return control_.empty() && !turns_.empty(); }
  uint64_t next_payload_bytes() const;
  // Takes the next frame to send; empty when nothing may be sent now.
  std::optional<NextFrame> Next(TimePoint now);
  // Whether something waits that only the peer holds up. Data that the limit on the rate holds back
  // does not count.
  bool WaitsForPeer() const {
    return !control_.empty() || (!turns_.empty() && resume_at_ == kNoDeadline);
  }
  // Takes the credit of a credit frame. INVALID_ARGUMENT when the first credit is 0.
  absl::Status TakeCredit(uint64_t credit, TimePoint now);
  uint64_t in_flight() const { return window_.in_flight(); }

  // When the limit on the rate next allows data; kNoDeadline while it holds nothing back.
  TimePoint resume_at() const { return resume_at_; }
  void Resume();
  // Whether something may be sent that could not when Next was called last.
  bool has_news() const { return news_; }
  void ClearNews() { news_ = false; }

 private:
  NextFrame TakeData();

  Link& link_;
  SendRate bucket_;
  SendWindow window_;
  std::deque<NextFrame> control_;
  std::deque<std::shared_ptr<OutgoingStream>> turns_;  // streams with data
  uint64_t waiting_ = 0;  // bytes of payload that no connection has been given yet
  TimePoint resume_at_ = kNoDeadline;
  bool news_ = false;
};

}  // namespace tandem
