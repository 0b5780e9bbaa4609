#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "transfer/medium.h"

namespace tandem {

struct NcclOptions {
  // Of the control connections.
  std::string listen_host = "127.0.0.1";
  uint16_t listen_port = 0;     // 0: the system chooses
  std::string advertised_host;  // what address() names; empty: listen_host

  // Payload of one operation; a larger payload cannot be sent. The same on all workers.
  size_t chunk_bytes = size_t{8} << 20;
  // Operations that may be under way from here, to all peers together; 0 where a worker only
  // receives.
  size_t send_slots = 4;
  // Connections that may be accepted: each has one of them. 0 where a worker only sends.
  size_t receive_slots = 8;

  // From the socket to a communicator that both sides have.
  std::chrono::milliseconds init_timeout{10'000};
  // What an operation may take besides its bytes; the first of a connection has init_timeout.
  std::chrono::milliseconds operation_grace{1'000};
  // An abort that takes longer never ends: health().
  std::chrono::milliseconds abort_patience{30'000};
};

// Of the device's memory, what NcclMedium::Open takes: nothing where this build has no NCCL. What
// NCCL takes for itself with each communicator is its own affair.
size_t NcclDeviceBytes(const NcclOptions& options);

// Payloads from GPU to GPU with NCCL, one communicator for each connection; everything else over a
// TCP socket (docs/transports.md). Addresses are "host:port" of that. Outlives its channels.
class NcclMedium : public Medium {
 public:
  // Takes the memory of the slots from `device`, which outlives the medium. FAILED_PRECONDITION
  // where this build, this machine or the device has no NCCL, and says what to install;
  // RESOURCE_EXHAUSTED for the memory, UNAVAILABLE where it cannot listen.
  static absl::StatusOr<std::unique_ptr<NcclMedium>> Open(Device& device,
                                                          const NcclOptions& options);

  // UNAVAILABLE while an abort takes longer than it may: the GPU's memory that it holds is lost
  // until the process is started anew.
  absl::Status health() const override = 0;
};

}  // namespace tandem
