#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device.h"
#include "transfer/framed/extent_stream.h"
#include "transfer/framed/payload_path.h"
#include "transfer/transport.h"

namespace tandem {

// Payloads that a side channel has found and that the device is still to copy to their places.
// Flush copies all queued payloads and waits for that. It tells the receiver that a payload has
// landed if the hash of what was written is that of its frame. Thread: the loop's.
class PulledLandings {
 public:
  // `device` and `receiver` outlive this object.
  PulledLandings(Device& device, FrameReceiver& receiver, ExtentStream stream);

  bool empty() const { return headers_.empty(); }
  bool full() const {
    return headers_.size() == ExtentStream::kMaxExtents || bytes_ >= enough_bytes_;
  }
  size_t buffer_bytes() const { return stream_.buffer_bytes(); }

  // Queues the copy of a payload. Must not be called while full. `source` stays as it is until
  // Flush; `place` is as long.
  void Queue(const FrameHeader& header, std::span<const std::byte> source,
             std::span<std::byte> place);
  // Copies all queued payloads, tells the receiver of them and returns how many were damaged.
  // UNAVAILABLE when the device failed: then none of them has landed.
  absl::StatusOr<size_t> Flush();

 private:
  // The bytes that are enough for a Flush; the last payload may exceed it. On a device each Flush
  // waits for the device, so it takes many payloads. On the host many at a time gain nothing, and
  // the sender gets room again only for what has landed.
  static constexpr size_t kEnoughBytes = size_t{16} << 20;
  static constexpr size_t kEnoughHostBytes = size_t{1} << 20;

  const std::string device_;  // the device's name
  const size_t enough_bytes_;
  FrameReceiver& receiver_;
  ExtentStream stream_;
  std::vector<FrameHeader> headers_;
  std::vector<ExtentCopy> copies_;  // one for each header
  size_t bytes_ = 0;
};

// Payloads travel beside the bytes of the connection (SideChannel): frames name them instead of
// carrying them.
class SideChannelPayloads final : public PayloadPath {
 public:
  // `device` and `receiver` outlive the path. Errors as ExtentStream::Create.
  static absl::StatusOr<std::unique_ptr<PayloadPath>> Create(Device& device,
                                                             FrameReceiver& receiver);
  explicit SideChannelPayloads(PulledLandings landings) : landings_(std::move(landings)) {}

  std::unique_ptr<OutboundPayloads> NewOutbound(ByteChannel& channel, uint64_t id) override;
  std::unique_ptr<InboundPayloads> NewInbound(ByteChannel& channel) override;
  size_t buffer_bytes() const override { return landings_.buffer_bytes(); }

 private:
  PulledLandings landings_;
};

// Makes the sending half of a SideChannelPayloads path alone, which needs nothing of a transport.
std::unique_ptr<OutboundPayloads> NewSideChannelOutbound(ByteChannel& channel);

}  // namespace tandem
