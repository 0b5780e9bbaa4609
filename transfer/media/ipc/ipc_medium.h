#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "transfer/framed/extent_stream.h"
#include "transfer/media/host_medium.h"
#include "transfer/media/ipc/segments.h"
#include "transfer/wire/byte_channel.h"
#include "transfer/wire/frame.h"

namespace tandem {

struct IpcOptions {
  // The device whose memory holds the payloads. It can_share() and outlives the medium. Both sides
  // have devices of the same kind.
  Device* device = nullptr;
  // The memory that this side may send from, at most kMaxMemorySegments pieces: each the whole of
  // an AllocateShared of `device`, valid for the lifetime of the medium. Empty when this side sends
  // nothing.
  std::vector<std::span<const std::byte>> shared;
};

// The sending side of all connections of a medium. Payloads stay where they are and are hashed
// there.
class IpcSendSideChannel final : public SideChannel {
 public:
  // `segments` outlives the side channel. Errors as ExtentStream::Create.
  static absl::StatusOr<std::unique_ptr<IpcSendSideChannel>> Create(Device& device,
                                                                    const SharedSegments& segments);

  Room room(uint64_t /*in_flight*/) override {
    return {.payloads = ExtentStream::kMaxExtents,
            .bytes = kMaxPayloadBytes,
            .enough_bytes = enough_bytes_};
  }
  absl::StatusOr<uint32_t> Offer(std::span<OfferedPayload> payloads) override;

  // The size of the memory into which the device writes the hashes of payloads.
  size_t buffer_bytes() const { return stream_.buffer_bytes(); }

 private:
  IpcSendSideChannel(const SharedSegments& segments, ExtentStream stream, size_t enough_bytes)
      : segments_(segments), enough_bytes_(enough_bytes), stream_(std::move(stream)) {}

  const SharedSegments& segments_;
  const size_t enough_bytes_;
  ExtentStream stream_;
  std::vector<std::span<const std::byte>> extents_;  // those of the Offer in progress
};

// Shares the memory in which payloads lie, so that the receiver copies them once
// (docs/media/ipc.md).
class IpcMedium final : public HostMedium {
 public:
  // Shares the memory and listens for peers. UNIMPLEMENTED when the device shares nothing,
  // INVALID_ARGUMENT for memory that cannot be shared, RESOURCE_EXHAUSTED or UNAVAILABLE when the
  // system has no room.
  static absl::StatusOr<std::unique_ptr<IpcMedium>> Open(const IpcOptions& options);

  std::string_view name() const override { return "ipc"; }
  bool carries_any_memory() const override { return false; }
  absl::Status MayCarry(std::span<const std::byte> payload) const override {
    return segments_.HandleOf(payload).status();
  }
  size_t buffer_bytes() const override { return side_channel_->buffer_bytes(); }

 private:
  IpcMedium(Device& device, HostListener listener, SharedSegments segments)
      : HostMedium(std::move(listener)), device_(device), segments_(std::move(segments)) {}

  absl::StatusOr<SharedMemory> Share() override;
  absl::StatusOr<std::unique_ptr<SideChannel>> OpenShared(const MemoryGreeting& greeting,
                                                          std::vector<UniqueFd> files) override;

  Device& device_;
  const SharedSegments segments_;
  std::shared_ptr<IpcSendSideChannel> side_channel_;  // used by all connections
};

}  // namespace tandem
