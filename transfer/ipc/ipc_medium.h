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
#include "transfer/host_listener.h"
#include "transfer/ipc/ipc_channel.h"
#include "transfer/ipc/lanes.h"
#include "transfer/ipc/segments.h"
#include "transfer/medium.h"

namespace tandem {

struct IpcOptions {
  // Where payloads lie and land; can_share(), outlives the medium. Both sides' are of one kind.
  Device* device = nullptr;
  // What this side may send from: each the whole of what AllocateShared of `device` gave, at most
  // kMaxIpcSegments. It stays as it is as long as the medium. None where nothing is sent.
  std::vector<std::span<const std::byte>> shared;
};

// Peers of the same host, network namespace and user, that read payloads where they lie
// (docs/transports.md). Who connects shows its memory; who accepts opens it. Outlives its channels.
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
    return segments_.PlaceOf(payload).status();
  }
  size_t buffer_bytes() const override { return lane_->buffer_bytes(); }

 private:
  IpcMedium(Device& device, HostListener listener, SharedSegments segments)
      : device_(device), listener_(std::move(listener)), segments_(std::move(segments)) {}

  Device& device_;
  HostListener listener_;
  const SharedSegments segments_;
  std::unique_ptr<SharedLane> lane_;
};

}  // namespace tandem
