#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kvstore/codec/kv_sensitivity.h"

namespace tandem {

// The name of the file in the folder of its model.
inline constexpr char kKvSensitivityFile[] = "kv_sensitivity.json";

// What `tandem calibrate-kv` measured of a model. The list of K and that of V have one number for
// each layer.
struct MeasuredKvSensitivity {
  uint64_t model_fingerprint = 0;
  KvSensitivity sensitivity;
};

// Writes the file as JSON. Equal measurements give equal text.
std::string WriteKvSensitivity(const MeasuredKvSensitivity& measured);

// Parses the file; accepts any bytes. INVALID_ARGUMENT names the field that is missing, no positive
// finite number, or too long.
absl::StatusOr<MeasuredKvSensitivity> ParseKvSensitivity(std::string_view text);

// Loads the file `path` for the model with `fingerprint` and `num_layers` layers. Errors name the
// file: NOT_FOUND when there is none; INVALID_ARGUMENT when it is malformed; FAILED_PRECONDITION,
// with what to do, when it is of another model or another number of layers, or cannot be read.
absl::StatusOr<KvSensitivity> LoadKvSensitivity(const std::string& path, uint64_t fingerprint,
                                                int32_t num_layers);

}  // namespace tandem
