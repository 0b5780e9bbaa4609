#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kvstore/codec/kv_sensitivity.h"
#include "server/assembly/worker_options.h"

namespace tandem {

// What `tandem calibrate-kv` wrote into the folder of the worker's model. Empty where there is no
// such file, and for workers that do not need it: only prefill workers round KV, and a simulated
// device computes none. Errors name the file, and say what to do (LoadKvSensitivity).
absl::StatusOr<KvSensitivity> KvSensitivityFor(const WorkerOptions& options,
                                               uint64_t model_fingerprint, int32_t num_layers);

}  // namespace tandem
