#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "transfer/media/host_medium.h"
#include "transfer/media/ipc/segments.h"
#include "transfer/media/ipc/side_channels.h"

namespace tandem {

struct IpcOptions {
  // The device whose memory holds the payloads. It can_share() and outlives the medium. Both sides
  // have devices of the same kind.
  Device* device = nullptr;
  // The memory that this side may send from, at most kMaxMemorySegments pieces: each the whole of an
  // AllocateShared of `device`, valid for the lifetime of the medium. Empty when this side sends
  // nothing.
  std::vector<std::span<const std::byte>> shared;
};

// Shares the memory in which payloads lie, so that the receiver copies them once
// (docs/media/ipc.md).
class IpcMedium final : public HostMedium {
 public:
  // UNIMPLEMENTED when the device shares nothing, INVALID_ARGUMENT for memory that cannot be
  // shared, RESOURCE_EXHAUSTED or UNAVAILABLE when the system has no room.
  static absl::StatusOr<std::unique_ptr<IpcMedium>> Open(const IpcOptions& options);

  std::string_view name() const override { return "ipc"; }
  absl::Status MayCarry(std::span<const std::byte> payload) const override {
    return segments_.HandleOf(payload).status();
  }
  size_t buffer_bytes() const override { return side_channel_->buffer_bytes(); }

 private:
  IpcMedium(Device& device, HostListener listener, SharedSegments segments)
      : HostMedium(std::move(listener)), device_(device), segments_(std::move(segments)) {}

  absl::StatusOr<SharedMemory> Share() override;
  absl::StatusOr<std::unique_ptr<SideChannel>> OpenMemory(const MemoryGreeting& greeting,
                                                          std::vector<UniqueFd> files) override;

  Device& device_;
  const SharedSegments segments_;
  std::shared_ptr<IpcSendSideChannel> side_channel_;  // of all connections
};

}  // namespace tandem
