#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "model/checkpoint/checkpoint.h"
#include "model/transformer/weights_as.h"

namespace tandem {

// Tells one model from another before its weights are read: hashes config.json and, of each tensor,
// its name, dtype, shape and a sample of its bytes. Damage that misses every sample is found by the
// hash of all bytes, which is known when the weights have been loaded (WeightsHashed). Weights that
// are quantised when they are loaded are another model: its tokens differ.
absl::StatusOr<uint64_t> FingerprintModel(const std::string& directory,
                                          const Checkpoint& checkpoint, WeightsAs weights_as);

}  // namespace tandem
