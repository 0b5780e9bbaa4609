#include "transfer/framed/payload_path.h"

#include "base/hash.h"
#include "base/status.h"

namespace tandem {
namespace {

constexpr size_t kBatchBytes = 512 << 10;

class DirectOutbound final : public OutboundPayloads {
 public:
  absl::Status Fill(PeerStreams& streams, FrameBatch& batch, TimePoint now) override {
    const size_t first = batch.size();
    while (batch.bytes() < kBatchBytes && batch.size() < kBatchFrames) {
      std::optional<NextFrame> frame = streams.Next(now);
      if (!frame) break;
      if (!frame->payload.empty()) frame->header.payload_hash = Hash64(frame->payload);
      batch.Add(frame->header, frame->payload);
    }
    batch.Encode(first);
    return absl::OkStatus();
  }
};

}  // namespace

absl::Status InboundPayloads::OnReference(const FrameHeader&, LandingHost&) {
  return InvalidArgument("a reference without a side channel");
}

absl::Status InboundPayloads::OnAnnouncement(const FrameHeader&, LandingHost&) {
  return InvalidArgument("an announcement without a side channel");
}

std::unique_ptr<OutboundPayloads> DirectPayloads::NewOutbound(ByteChannel&, uint64_t) {
  return std::make_unique<DirectOutbound>();
}

}  // namespace tandem
