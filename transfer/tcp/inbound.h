#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "transfer/frame_reader.h"
#include "transfer/refused_streams.h"
#include "transfer/tcp/connection.h"
#include "transfer/tcp/socket.h"
#include "transfer/transport.h"

namespace tandem {

// A connection that a peer made to push streams: data and commits come in, acks and rejects go out.
// Thread: the loop's.
class InboundConnection final : public Connection, private FrameHandler {
 public:
  InboundConnection(UniqueFd socket, FrameReceiver& receiver, TransportCounters& counters,
                    std::chrono::milliseconds stall_timeout);

  int fd() const override { return socket_.get(); }
  absl::Status OnReadable() override;
  absl::Status OnWritable() override;
  bool wants_write() const override { return !replies_.empty(); }
  TimePoint deadline() const override;
  void OnClosed(const absl::Status& status) override;

 private:
  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header) override;
  void Landed(const FrameHeader& header, const absl::Status& status) override;
  absl::Status Control(const FrameHeader& header) override;

  void Refuse(StreamKey key, absl::StatusCode code);
  void Reply(const FrameHeader& header);

  const UniqueFd socket_;
  FrameReceiver& receiver_;
  TransportCounters& counters_;
  const std::chrono::milliseconds stall_timeout_;
  FrameReader reader_;
  RefusedStreams refused_;
  std::string replies_;  // bytes that the socket has not taken yet
  TimePoint last_progress_;
};

}  // namespace tandem
