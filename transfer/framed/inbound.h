#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "transfer/byte_channel.h"
#include "transfer/frame_reader.h"
#include "transfer/framed/connection.h"
#include "transfer/refused_streams.h"
#include "transfer/transport.h"

namespace tandem {

// A connection that a peer made to push streams: data and commits come in, acks and rejects go out.
// Thread: the loop's.
class InboundConnection final : public Connection, private FrameHandler {
 public:
  struct Timeouts {
    std::chrono::milliseconds connect{};
    std::chrono::milliseconds stall{};
  };

  InboundConnection(std::unique_ptr<ByteChannel> channel, FrameReceiver& receiver,
                    TransportCounters& counters, const Timeouts& timeouts);

  int fd() const override { return channel_->fd(); }
  bool wants_output() const override { return channel_->wants_output(); }
  absl::StatusOr<Turn> Advance() override;
  TimePoint deadline() const override;
  void OnClosed(const absl::Status& status) override;

 private:
  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header) override;
  void Landed(const FrameHeader& header, const absl::Status& status) override;
  absl::Status Control(const FrameHeader& header) override;

  absl::StatusOr<Turn> Read();
  absl::Status WriteReplies();
  void Refuse(StreamKey key, absl::StatusCode code);
  void Reply(const FrameHeader& header);

  const std::unique_ptr<ByteChannel> channel_;
  FrameReceiver& receiver_;
  TransportCounters& counters_;
  const Timeouts timeouts_;
  FrameReader reader_;
  RefusedStreams refused_;
  bool established_ = false;
  std::string replies_;  // bytes that the channel has not taken yet
  TimePoint last_progress_;
};

}  // namespace tandem
