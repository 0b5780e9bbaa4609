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
#include "transfer/media/shm/shared_memory.h"

namespace tandem {

// The most memory that a peer can make this side map for one connection.
inline constexpr size_t kMaxAreaBytes = size_t{1} << 30;

struct ShmOptions {
  // The device whose memory holds the payloads; outlives the medium.
  Device* device = nullptr;
  // Shared memory for the connections that this side makes, taken when the medium is made. It holds
  // one area for each; further connections are refused. 0: this side sends nothing.
  size_t buffer_bytes = size_t{64} << 20;
  // The size of the area of one connection.
  size_t area_bytes = size_t{4} << 20;
  // The largest payload that is sent. Two must fit in an area.
  size_t max_payload_bytes = size_t{1} << 20;
};

// The area size for payloads of at most `max_payload_bytes` in the memory of `device`.
size_t ShmAreaBytes(const Device& device, size_t max_payload_bytes);

// Shared memory of this process that its device reaches by itself. Move-only.
struct RelayMemory {
  // Makes the memory and registers it with `device`. Errors as NewSharedMemory and
  // Device::RegisterHost.
  static absl::StatusOr<RelayMemory> Create(Device& device, size_t bytes);

  UniqueFd file;
  Mapping mapping;
  DeviceBuffer registration;  // of `mapping` with the device; destroyed before it
};

// What the sending connections of one medium share. Thread: the loop's.
struct ShmSender {
  // The areas that no connection uses. Each is a file of its own, so that a peer maps its
  // connection's area and nothing else.
  std::vector<RelayMemory> free_areas;
  ExtentStream stream;             // used by one connection at a time
  std::vector<ExtentCopy> copies;  // those of the Offer in progress
};

// Relays payloads through shared memory that the devices of both sides reach: the sender copies
// them there, and the receiver copies them out (docs/media/shm.md).
class ShmMedium final : public HostMedium {
 public:
  // Takes the shared memory and listens for peers. INVALID_ARGUMENT for impossible sizes,
  // UNAVAILABLE when the system has not enough shared memory; other errors as Device::RegisterHost
  // and NewStream.
  static absl::StatusOr<std::unique_ptr<ShmMedium>> Open(const ShmOptions& options);

  std::string_view name() const override { return "shm"; }
  absl::Status MayCarry(std::span<const std::byte> payload) const override;
  size_t buffer_bytes() const override {
    return num_areas() * options_.area_bytes + sender_.stream.buffer_bytes();
  }

 private:
  ShmMedium(const ShmOptions& options, HostListener listener, ShmSender sender)
      : HostMedium(std::move(listener)), options_(options), sender_(std::move(sender)) {}

  size_t num_areas() const { return options_.buffer_bytes / options_.area_bytes; }
  absl::StatusOr<SharedMemory> Share() override;
  absl::StatusOr<std::unique_ptr<SideChannel>> OpenShared(const MemoryGreeting& greeting,
                                                          std::vector<UniqueFd> files) override;

  const ShmOptions options_;
  ShmSender sender_;
};

}  // namespace tandem
