#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "transfer/media/medium.h"
#include "transfer/media/nccl/nccl_options.h"

namespace tandem {

// Opens the medium that moves payloads from GPU to GPU with NCCL, one communicator for each
// connection, and everything else over a TCP socket (docs/media/nccl.md), whose "host:port" is the
// address. Takes the memory of the slots from `device`. The device outlives the medium, and the
// medium its channels. FAILED_PRECONDITION says what to install when this build, this machine or
// the device has no NCCL. RESOURCE_EXHAUSTED when the device lacks memory, UNAVAILABLE when the
// medium cannot listen.
//
// Medium::health is UNAVAILABLE while an abort takes longer than abort_patience. The GPU memory that
// it holds is lost until the process is restarted.
absl::StatusOr<std::unique_ptr<Medium>> OpenNcclMedium(Device& device, const NcclOptions& options);

}  // namespace tandem
