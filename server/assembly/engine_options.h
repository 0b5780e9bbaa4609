#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/options.h"
#include "kernels/device.h"
#include "model/checkpoint/model_config.h"
#include "server/assembly/worker_options.h"

namespace tandem {

// The engine options that follow from a worker's flags, for the model `config` on `device`. The
// epoch is the present time. INVALID_ARGUMENT or FAILED_PRECONDITION names the flag at fault, or the
// file with the sensitivity of the model's KV.
absl::StatusOr<EngineOptions> EngineOptionsFor(const WorkerOptions& options,
                                               const ModelConfig& config,
                                               uint64_t model_fingerprint, const Device& device);

}  // namespace tandem
