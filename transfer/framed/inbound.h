#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "transfer/framed/connection_table.h"
#include "transfer/framed/payload_path.h"
#include "transfer/framed/receive_credit.h"
#include "transfer/framed/refused_streams.h"
#include "transfer/framed/reply_buffer.h"
#include "transfer/transport.h"
#include "transfer/wire/byte_channel.h"
#include "transfer/wire/frame_reader.h"

namespace tandem {

// A connection that a peer made to push streams: data, commits and renewals come in, answers and
// credit go out.
// Thread: the loop's.
class InboundConnection final : public Connection, private FrameHandler, private LandingHost {
 public:
  // What the transport gives to each connection that it accepts. All of it outlives the connection.
  struct Context {
    FrameReceiver& receiver;
    std::span<std::byte> read_ahead;  // for bytes without a place; free again after each turn
    TransportCounters& counters;
    Timeouts timeouts;
    std::function<void()> greeted;  // called when the peer's hello has come
  };

  // `payloads` was made for the same channel.
  InboundConnection(std::unique_ptr<ByteChannel> channel, std::unique_ptr<InboundPayloads> payloads,
                    const ReceiveCredit& credit, Context context);

  int fd() const override { return channel_->fd(); }
  bool wants_output() const override { return channel_->wants_output(); }
  absl::StatusOr<Turn> Advance() override;
  TimePoint deadline() const override;
  void OnClosed(const absl::Status& status) override;

 private:
  enum class Stage : uint8_t { kEstablishing, kBeforeHello, kOpen };

  // Called by the FrameReader, as FrameHandler describes.
  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header) override;
  void Landed(const FrameHeader& header, const absl::Status& status) override;
  absl::Status Control(const FrameHeader& header) override;
  // Called by the payload path, as LandingHost describes.
  absl::StatusOr<std::span<std::byte>> AskForPlace(const FrameHeader& header) override;
  void Refuse(const FrameHeader& header, const absl::Status& status) override;
  absl::Status FlushAndGrant() override;
  void Received(uint32_t payload_bytes) override;
  absl::Status Fail(const absl::Status& status) override;

  absl::StatusOr<bool> Establish();
  absl::StatusOr<Turn> Read();
  absl::Status Take(size_t count, size_t with_place);
  absl::Status Flush();
  absl::Status CheckData() const;
  absl::Status OnHello();
  void OnCommit(const FrameHeader& header);
  void OnRenewal(const FrameHeader& header);
  bool Grant(ReceiveCredit::Grant grant);
  void GrantNow();

  const std::unique_ptr<ByteChannel> channel_;
  const std::unique_ptr<InboundPayloads> payloads_;
  const Context context_;
  Stage stage_ = Stage::kEstablishing;
  FrameReader reader_;
  ReceiveCredit credit_;
  RefusedStreams refused_;
  ReplyBuffer replies_;
  absl::Status lost_;   // this side failed: nothing can land any more
  absl::Status wrong_;  // why the connection is closed once the replies are out
  TimePoint last_progress_;
};

}  // namespace tandem
