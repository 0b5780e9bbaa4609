#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "transfer/media/medium.h"

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

// Opens the medium that relays payloads through shared memory which the devices of both sides reach:
// the sender copies them there, and the receiver copies them out (docs/media/shm.md). Takes the
// shared memory and listens for peers. INVALID_ARGUMENT for impossible sizes, UNAVAILABLE when the
// system has not enough shared memory; other errors as Device::RegisterHost and NewStream.
absl::StatusOr<std::unique_ptr<Medium>> OpenShmMedium(const ShmOptions& options);

}  // namespace tandem
