#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "transfer/byte_channel.h"
#include "transfer/frame_reader.h"
#include "transfer/framed/connection.h"
#include "transfer/send_streams.h"

namespace tandem {

// A frame that waits to be sent. The payload belongs to the caller of Post.
struct QueuedFrame {
  FrameHeader header;  // without payload_hash: that is computed when the frame's turn comes
  std::span<const std::byte> payload;
};

// A connection that this side made to push streams: data and commits go out, acks and rejects come
// in. Streams take turns, a frame each. Frames that are queued before the connection stands wait.
// Thread: the loop's.
class OutboundConnection final : public Connection, private FrameHandler {
 public:
  // The receiver acknowledged or rejected the stream, which is dropped here by then.
  using StreamOver =
      std::function<void(StreamKey key, uint64_t serial, const absl::Status& status)>;
  struct Options {
    std::string peer;
    std::chrono::milliseconds connect_timeout{};
    std::chrono::milliseconds stall_timeout{};
  };

  OutboundConnection(Options options, std::unique_ptr<ByteChannel> channel, SendStreams& streams,
                     TransportCounters& counters, StreamOver stream_over);

  void AddStream(StreamKey key, uint64_t serial);
  // Without effect when the stream is not here.
  void Queue(StreamKey key, const QueuedFrame& frame);
  // Once it returns, no payload of the stream is read any more. The rest of a frame that is half
  // on the wire is copied and still sent, so that the other streams of the connection go on.
  void DropStream(StreamKey key);

  int fd() const override { return channel_->fd(); }
  bool wants_output() const override { return channel_->wants_output(); }
  absl::StatusOr<Turn> Advance() override;
  TimePoint deadline() const override;
  void OnClosed(const absl::Status&) override {}

 private:
  struct Stream {
    uint64_t serial = 0;
    std::deque<QueuedFrame> queue;
    bool committed = false;  // its commit is on the wire whole
  };
  struct OutFrame {
    StreamKey key;
    uint64_t serial = 0;
    FrameType type = FrameType::kData;
    std::array<std::byte, kFrameHeaderBytes> header;
    std::span<const std::byte> payload;
    std::vector<std::byte> owned;  // what `payload` names after DropStream
    size_t sent = 0;               // of header and payload

    size_t left() const { return header.size() + payload.size() - sent; }
  };

  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header) override;
  void Landed(const FrameHeader&, const absl::Status&) override {}
  absl::Status Control(const FrameHeader& header) override;

  bool has_work() const { return !batch_.empty() || !turns_.empty(); }
  absl::Status ReadReplies();
  absl::StatusOr<Turn> Send();
  absl::StatusOr<Turn> FlushChannel();
  void FillBatch();
  absl::StatusOr<size_t> SendBatch();
  void TakeSent(size_t count);
  void FrameSent(const OutFrame& frame);

  const Options options_;
  SendStreams& streams_;
  TransportCounters& counters_;
  const StreamOver stream_over_;

  const std::unique_ptr<ByteChannel> channel_;
  bool established_ = false;
  FrameReader reader_;
  absl::flat_hash_map<StreamKey, Stream> sending_;
  std::deque<StreamKey> turns_;  // streams with a queue, in the order of their turns
  std::deque<OutFrame> batch_;   // hashed and encoded; only the first may be half sent
  size_t batch_bytes_ = 0;
  bool got_data_ = false;  // which no receiver may send
  TimePoint last_progress_;
};

}  // namespace tandem
