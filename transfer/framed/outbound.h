#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "transfer/byte_channel.h"
#include "transfer/frame_reader.h"
#include "transfer/framed/connection.h"
#include "transfer/framed/outbound_group.h"
#include "transfer/framed/outbound_staging.h"

namespace tandem {

// One connection of a group that this side made to push streams: takes frames from the group and
// writes them, reads the peer's answers and hands them to the group.
// Thread: the loop's.
class OutboundConnection final : public Connection, private FrameHandler {
 public:
  // `index`: in the group, which outlives the connection. `staging`: the loop's, which knows the
  // connection as `id`, where payloads lie in the memory of a device; null: in the host's.
  OutboundConnection(OutboundGroup& group, uint32_t index, std::unique_ptr<ByteChannel> channel,
                     OutboundStaging* staging, uint64_t id, TransportCounters& counters,
                     const Timeouts& timeouts);

  OutboundGroup& group() const { return group_; }
  // Once it returns, no payload of the stream is read any more. The rest of a frame that is half
  // on the wire is still sent, so that the other streams of the connection go on: where its payload
  // is the caller's, from a copy on the heap, of which a connection has at most one.
  void DropStream(StreamKey key);

  int fd() const override { return channel_->fd(); }
  bool wants_output() const override { return channel_->wants_output(); }
  absl::StatusOr<Turn> Advance() override;
  TimePoint deadline() const override { return deadline_; }
  void OnClosed(const absl::Status&) override;

 private:
  struct OutFrame {
    FrameHeader fields;
    std::array<std::byte, kFrameHeaderBytes> header;
    std::span<const std::byte> payload;
    StagedSlot slot;               // what `payload` names where the caller's is a device's
    std::vector<std::byte> owned;  // what `payload` names after DropStream
    size_t sent = 0;               // of header and payload

    size_t left() const { return header.size() + payload.size() - sent; }
    // Of its payload, wherever that travels.
    size_t brought_bytes() const { return BringsPayload(fields) ? fields.payload_bytes : 0; }
  };

  // A slot whose payload was written, but may still be read by the channel.
  struct SentSlot {
    StagedSlot slot;
    uint64_t end = 0;  // of written_
  };

  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header) override;
  void Landed(const FrameHeader&, const absl::Status&) override {}
  absl::Status Control(const FrameHeader& header) override;

  absl::StatusOr<Turn> ReadAndSend();
  absl::Status ReadReplies();
  absl::StatusOr<Turn> Send();
  absl::StatusOr<Turn> FlushChannel();
  absl::Status FillBatch();
  absl::Status FillFromBytes(TimePoint now);
  absl::Status FillFromLane(PayloadLane& lane, TimePoint now);
  absl::Status Offer(PayloadLane& lane);
  void Encode(size_t first);
  bool TakeFrame(TimePoint now);
  size_t num_slots_held() const;
  absl::Status CopyToSlots(size_t first);
  absl::StatusOr<size_t> SendBatch();
  size_t TakeSent(size_t count);
  void GiveSlotsBack();
  void CountPayload();
  void CountZeroCopy();
  void UpdateDeadline();

  OutboundGroup& group_;
  const uint32_t index_;
  const std::unique_ptr<ByteChannel> channel_;
  OutboundStaging* const staging_;
  const uint64_t id_;
  TransportCounters& counters_;
  const Timeouts timeouts_;

  bool established_ = false;
  FrameReader reader_;
  std::deque<OutFrame> batch_;        // hashed and encoded; only the first may be half sent
  std::vector<LanePayload> offered_;  // of the batch that is being filled
  size_t batch_bytes_ = 0;
  std::deque<SentSlot> sent_slots_;
  bool lacks_room_ = false;        // of slots or of the lane, or the batch would have more
  uint64_t written_ = 0;           // bytes that the channel took
  uint64_t payload_bytes_ = 0;     // of the frames that left the batch
  uint64_t credit_ = 0;            // the highest that came here
  uint64_t zero_copy_writes_ = 0;  // that the link was told of
  bool gave_up_zero_copy_ = false;
  bool got_data_ = false;  // which no receiver may send
  bool waited_ = false;    // something was left to send after the turn before
  TimePoint last_progress_;
  TimePoint deadline_;
};

}  // namespace tandem
