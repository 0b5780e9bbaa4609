#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "transfer/byte_channel.h"
#include "transfer/frame_reader.h"
#include "transfer/framed/connection.h"
#include "transfer/framed/inbound_group.h"
#include "transfer/framed/pulled_landings.h"
#include "transfer/framed/staged_landings.h"
#include "transfer/transport.h"

namespace tandem {

// The loop's, for payloads that the channel does not read straight into their places; null: there
// are none such.
struct LandingWays {
  StagedLandings* staged = nullptr;  // places lie in the memory of a device
  PulledLandings* pulled = nullptr;  // the channels have lanes
};

// Where a payload of a lane lies (PayloadLane::Find).
struct LaneExtent {
  uint64_t place = 0;
  size_t bytes = 0;
};

// A connection that a peer made to push streams: data, commits and renewals come in, answers and
// credit go out.
// Thread: the loop's.
class InboundConnection final : public Connection, private FrameHandler {
 public:
  // Finds the group of a hello and joins it there; the group outlives the connection.
  using JoinGroup = std::function<absl::StatusOr<InboundGroup*>(const FrameHeader& hello)>;

  // `read_ahead`: the loop's, for what is read and has no place yet; free again after each turn.
  InboundConnection(std::unique_ptr<ByteChannel> channel, FrameReceiver& receiver,
                    const LandingWays& landings, JoinGroup join_group,
                    std::span<std::byte> read_ahead, TransportCounters& counters,
                    const Timeouts& timeouts);

  int fd() const override { return channel_->fd(); }
  bool wants_output() const override { return channel_->wants_output(); }
  absl::StatusOr<Turn> Advance() override;
  TimePoint deadline() const override;
  void OnClosed(const absl::Status& status) override;

 private:
  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header) override;
  void Landed(const FrameHeader& header, const absl::Status& status) override;
  absl::Status Control(const FrameHeader& header) override;

  absl::StatusOr<bool> Establish();
  absl::StatusOr<std::span<std::byte>> AskForPlace(const FrameHeader& header);
  absl::StatusOr<std::span<std::byte>> PrepareStaged(const FrameHeader& header);
  bool landings_wait() const;
  absl::Status Flush();
  absl::StatusOr<Turn> Read();
  absl::Status Take(size_t count, size_t with_place);
  absl::Status WriteReplies();
  absl::Status OnHello(const FrameHeader& header);
  absl::Status OnAnnounce(const FrameHeader& header);
  absl::Status LaneSays(const absl::Status& status);
  absl::Status OnReference(const FrameHeader& header);
  absl::Status OnCommit(const FrameHeader& header);
  void OnRenewal(const FrameHeader& header);
  // `commit`: the number of the one that is answered, 0 when none is.
  void Refuse(StreamKey key, uint32_t commit, const absl::Status& status);
  void Reject(StreamKey key, uint32_t commit, absl::StatusCode code);
  void Reply(const FrameHeader& header);
  void Consume();
  void GrantWhatIsWorthAFrame();
  bool GrantCredit(InboundGroup::Grant grant);  // whether there was any

  const std::unique_ptr<ByteChannel> channel_;
  FrameReceiver& receiver_;
  const LandingWays landings_;
  const JoinGroup join_group_;
  const std::span<std::byte> read_ahead_;
  TransportCounters& counters_;
  const Timeouts timeouts_;

  bool established_ = false;
  FrameReader reader_;
  InboundGroup* group_ = nullptr;  // since the hello
  uint32_t index_ = 0;             // in the group
  uint64_t consumed_bytes_ = 0;    // of this connection
  uint64_t coming_bytes_ = 0;      // of payload that came last: not consumed before it is whole
  StagedSlot slot_;  // with staged landings, what the payload that is coming is read into
  std::span<std::byte> place_;       // and where it goes then
  std::optional<LaneExtent> named_;  // of a lane, the last that came and was not released
  absl::Status lost_;                // the device failed: nothing can land
  absl::Status wrong_;               // why the connection is to be closed once the replies are out
  std::string replies_;              // bytes that the channel has not taken yet
  TimePoint last_progress_;
};

}  // namespace tandem
