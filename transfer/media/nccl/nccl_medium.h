#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "transfer/media/nccl/nccl_options.h"
#include "transfer/media/tcp/socket_medium.h"

namespace tandem {

// Moves payloads from GPU to GPU with NCCL, one communicator for each connection, and everything
// else over a TCP socket (docs/media/nccl.md), whose "host:port" is the address. Outlives its
// channels.
class NcclMedium : public SocketMedium {
 public:
  // Takes the memory of the slots from `device`, which outlives the medium. FAILED_PRECONDITION
  // says what to install when this build, this machine or the device has no NCCL.
  // RESOURCE_EXHAUSTED when the device lacks memory, UNAVAILABLE when the medium cannot listen.
  static absl::StatusOr<std::unique_ptr<NcclMedium>> Open(Device& device,
                                                          const NcclOptions& options);

  // UNAVAILABLE while an abort takes longer than abort_patience. The GPU memory that it holds is
  // lost until the process is restarted.
  absl::Status health() const override = 0;

 protected:
  using SocketMedium::SocketMedium;
};

}  // namespace tandem
