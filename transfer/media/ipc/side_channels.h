#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "transfer/framed/extent_stream.h"
#include "transfer/media/ipc/segments.h"
#include "transfer/wire/side_channel.h"

namespace tandem {

// The sending side of all connections of a medium. Payloads stay where they are and are hashed
// there.
class IpcSendSideChannel final : public SideChannel {
 public:
  static constexpr size_t kMaxPayloads = 512;
  static constexpr size_t kMaxBytes = size_t{64} << 20;
  // In the host's memory the sender hashes one lot while the receiver copies the lot before, and
  // both take about the same time. A GPU is given as much as there is at once.
  static constexpr size_t kEnoughHostBytes = size_t{1} << 20;

  // `segments` outlives this. Errors as ExtentStream::Create.
  static absl::StatusOr<std::unique_ptr<IpcSendSideChannel>> Create(Device& device,
                                                                    const SharedSegments& segments);

  Room room(uint64_t /*in_flight*/) override {
    return {.payloads = kMaxPayloads, .bytes = kMaxBytes, .enough_bytes = enough_bytes_};
  }
  absl::StatusOr<uint32_t> Offer(std::span<OfferedPayload> payloads) override;

  // Memory for the hashes.
  size_t buffer_bytes() const { return stream_.buffer_bytes(); }

 private:
  IpcSendSideChannel(const SharedSegments& segments, ExtentStream stream, size_t enough_bytes);

  const SharedSegments& segments_;
  const size_t enough_bytes_;
  ExtentStream stream_;
  std::vector<std::span<const std::byte>> extents_;  // of the Offer in progress
};

// The receiving side of one connection. Payloads lie in the memory that the peer shares.
class IpcReceiveSideChannel final : public SideChannel {
 public:
  explicit IpcReceiveSideChannel(OpenedSegments segments) : segments_(std::move(segments)) {}

  absl::StatusOr<std::span<const std::byte>> Find(uint64_t handle, size_t bytes) const override {
    return segments_.Find(handle, bytes);
  }

 private:
  const OpenedSegments segments_;
};

}  // namespace tandem
