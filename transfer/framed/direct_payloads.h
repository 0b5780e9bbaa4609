#pragma once

#include <memory>

#include "transfer/framed/payload_path.h"

namespace tandem {

// The frames of a batch for which one write and one pass of hashing pay. A payload is hashed when
// its frame joins the batch and sent soon after, while it is still in the cache.
inline constexpr size_t kBatchFrames = 64;

// Reads a payload straight into its place.
class DirectInbound final : public InboundPayloads {
 public:
  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header,
                                               LandingHost& host) override {
    return host.AskForPlace(header);
  }
  bool Landed(const FrameHeader&, const absl::Status&) override { return true; }
};

// Payloads lie in the host's memory and have no detour.
class DirectPayloads final : public PayloadPath {
 public:
  std::unique_ptr<OutboundPayloads> NewOutbound(ByteChannel& channel, uint64_t id) override;
  std::unique_ptr<InboundPayloads> NewInbound(ByteChannel& channel) override;
};

}  // namespace tandem
