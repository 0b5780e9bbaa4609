#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "model/checkpoint/checkpoint.h"

namespace tandem {

// Tells one model from another without reading all of it: hashes config.json and, of each tensor,
// its name, dtype, shape and a sample of its bytes. Two workers with equal fingerprints compute the
// same KV, short of an edit that misses every sample.
absl::StatusOr<uint64_t> FingerprintModel(const std::string& directory,
                                          const Checkpoint& checkpoint);

}  // namespace tandem
