#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "transfer/media/medium.h"

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

// Opens the medium that shares the memory in which payloads lie, so that the receiver copies them
// once (docs/media/ipc.md), and listens for peers. UNIMPLEMENTED when the device shares nothing,
// INVALID_ARGUMENT for memory that cannot be shared, RESOURCE_EXHAUSTED or UNAVAILABLE when the
// system has no room.
absl::StatusOr<std::unique_ptr<Medium>> OpenIpcMedium(const IpcOptions& options);

}  // namespace tandem
