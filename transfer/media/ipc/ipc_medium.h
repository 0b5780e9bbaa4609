#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "transfer/media/host_listener.h"
#include "transfer/media/ipc/ipc_channel.h"
#include "transfer/media/ipc/segments.h"
#include "transfer/media/ipc/side_channels.h"
#include "transfer/media/medium.h"

namespace tandem {

struct IpcOptions {
  // The device whose memory holds the payloads. It can_share() and outlives the medium. Both sides
  // have devices of the same kind.
  Device* device = nullptr;
  // The memory that this side may send from, at most kMaxIpcSegments pieces: each the whole of an
  // AllocateShared of `device`, valid for the lifetime of the medium. Empty when this side sends
  // nothing.
  std::vector<std::span<const std::byte>> shared;
};

// Connects processes of the same host, network namespace and user: the connecting side shares its
// memory, and the accepting side reads payloads where they lie (docs/media/ipc.md). Outlives its
// channels.
class IpcMedium final : public Medium {
 public:
  // UNIMPLEMENTED when the device shares nothing, INVALID_ARGUMENT for memory that cannot be
  // shared, RESOURCE_EXHAUSTED or UNAVAILABLE when the system has no room.
  static absl::StatusOr<std::unique_ptr<IpcMedium>> Open(const IpcOptions& options);

  std::string_view name() const override { return "ipc"; }
  std::string address() const override { return listener_.address().Text(); }
  absl::Status MayReach(std::string_view peer) const override { return listener_.MayReach(peer); }

  int listener_fd() const override { return listener_.fd(); }
  absl::StatusOr<std::unique_ptr<ByteChannel>> Accept() override;
  absl::StatusOr<std::unique_ptr<ByteChannel>> Connect(std::string_view peer) override;

  bool has_lanes() const override { return true; }
  absl::Status MayCarry(std::span<const std::byte> payload) const override {
    return segments_.HandleOf(payload).status();
  }
  size_t buffer_bytes() const override { return side_channel_->buffer_bytes(); }

 private:
  IpcMedium(Device& device, HostListener listener, SharedSegments segments)
      : device_(device), listener_(std::move(listener)), segments_(std::move(segments)) {}

  Device& device_;
  HostListener listener_;
  const SharedSegments segments_;
  std::unique_ptr<IpcSendSideChannel> side_channel_;
};

}  // namespace tandem
