#pragma once

#include <memory>

#include "kernels/device.h"
#include "transfer/framed/outbound_staging.h"
#include "transfer/framed/payload_path.h"
#include "transfer/framed/staged_landings.h"

namespace tandem {

// Payloads lie in the memory of a device and pass through page-locked memory, which is set aside
// when the path is made: a slot for each payload on its way.
class StagedPayloads final : public PayloadPath {
 public:
  // `receiver` is null on a worker that only sends; it and `device` outlive the path. Errors as
  // StagingPool::Create.
  static absl::StatusOr<std::unique_ptr<PayloadPath>> Create(Device& device, size_t payload_bytes,
                                                             size_t total_bytes,
                                                             FrameReceiver* receiver);

  std::unique_ptr<OutboundPayloads> NewOutbound(ByteChannel& channel, uint64_t id) override;
  std::unique_ptr<InboundPayloads> NewInbound(ByteChannel& channel) override;
  absl::Status CheckPayload(uint64_t stream, size_t bytes) const override;
  size_t buffer_bytes() const override;
  bool has_turn() const override { return outbound_.has_turn(); }
  std::optional<uint64_t> BeginTurn() override { return outbound_.BeginTurn(); }
  void EndTurn() override { outbound_.EndTurn(); }

 private:
  StagedPayloads(std::unique_ptr<StagingPool> outbound, std::unique_ptr<StagedLandings> inbound)
      : outbound_(std::move(outbound)), inbound_(std::move(inbound)) {}

  OutboundStaging outbound_;
  const std::unique_ptr<StagedLandings> inbound_;  // null on a worker that only sends
};

}  // namespace tandem
