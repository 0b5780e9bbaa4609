#pragma once

#include <memory>
#include <span>

#include "transfer/framed/connection_table.h"
#include "transfer/framed/frame_batch.h"
#include "transfer/framed/payload_path.h"
#include "transfer/framed/peer_streams.h"
#include "transfer/wire/byte_channel.h"
#include "transfer/wire/frame_reader.h"

namespace tandem {

// The connection that this side made to push streams to a peer: writes the frames of the peer's
// streams, and reads the answers.
// Thread: the loop's.
class OutboundConnection final : public Connection, private FrameHandler {
 public:
  // `streams` outlives the connection; `payloads` was made for the same channel.
  OutboundConnection(PeerStreams& streams, std::unique_ptr<ByteChannel> channel,
                     std::unique_ptr<OutboundPayloads> payloads, TransportCounters& counters,
                     const Timeouts& timeouts);

  // Drops the frames of a stream. Once it returns, no payload of the stream is read any more. The
  // rest of a half-sent frame is still sent, so that the other streams go on: a connection holds a
  // copy on the heap of at most one payload.
  void DropStream(StreamKey key);

  int fd() const override { return channel_->fd(); }
  bool wants_output() const override { return channel_->wants_output(); }
  absl::StatusOr<Turn> Advance() override;
  TimePoint deadline() const override { return deadline_; }
  void OnClosed(const absl::Status&) override {}

 private:
  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header) override;
  void Landed(const FrameHeader&, const absl::Status&) override {}
  absl::Status Control(const FrameHeader& header) override;

  absl::StatusOr<Turn> ReadAndSend();
  absl::Status ReadReplies();
  absl::StatusOr<Turn> Send();
  void UpdateDeadline();

  PeerStreams& streams_;
  const std::unique_ptr<ByteChannel> channel_;
  const std::unique_ptr<OutboundPayloads> payloads_;
  TransportCounters& counters_;
  const Timeouts timeouts_;

  bool established_ = false;
  FrameReader reader_;
  FrameBatch batch_;
  uint64_t credit_ = 0;    // the highest credit that came
  bool got_data_ = false;  // a data frame came, which no receiver may send
  bool waited_ = false;    // something was left to send after the previous turn
  TimePoint last_progress_;
  TimePoint deadline_;
};

}  // namespace tandem
