#pragma once

#include <memory>

#include "kernels/device.h"
#include "transfer/framed/payload_path.h"
#include "transfer/framed/pulled_landings.h"

namespace tandem {

// Payloads travel beside the bytes of the connection (SideChannel): frames name them instead of
// carrying them.
class SideChannelPayloads final : public PayloadPath {
 public:
  // `device` and `receiver` outlive the path. Errors as PulledLandings::Create.
  static absl::StatusOr<std::unique_ptr<PayloadPath>> Create(Device& device,
                                                             FrameReceiver& receiver);
  explicit SideChannelPayloads(std::unique_ptr<PulledLandings> landings)
      : landings_(std::move(landings)) {}

  std::unique_ptr<OutboundPayloads> NewOutbound(ByteChannel& channel, uint64_t id) override;
  std::unique_ptr<InboundPayloads> NewInbound(ByteChannel& channel) override;
  size_t buffer_bytes() const override { return landings_->buffer_bytes(); }

 private:
  const std::unique_ptr<PulledLandings> landings_;
};

// The sending half alone, which needs nothing of a transport.
std::unique_ptr<OutboundPayloads> NewSideChannelOutbound(ByteChannel& channel);

}  // namespace tandem
