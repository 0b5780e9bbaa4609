#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/status.h"

namespace tandem {

// What the matrices of a checkpoint become when they are loaded. Norm weights and biases stay f32.
enum class WeightsAs : uint8_t {
  kStored,  // the floats that the checkpoint has
  kInt8,    // quantised, embedding and head, too (kernels/weight_format.h)
};

inline constexpr char kWeightsAsNames[] = "stored, int8";

constexpr std::string_view Name(WeightsAs as) { return as == WeightsAs::kInt8 ? "int8" : "stored"; }

// "int8", or the name of what the checkpoint has.
constexpr std::string_view NameOfWeights(WeightsAs as, DType stored) {
  return as == WeightsAs::kStored ? Name(stored) : Name(as);
}

// INVALID_ARGUMENT for a name of neither; the flag is --weights.
inline absl::StatusOr<WeightsAs> ParseWeightsAs(std::string_view name) {
  for (const WeightsAs as : {WeightsAs::kStored, WeightsAs::kInt8}) {
    if (Name(as) == name) return as;
  }
  return InvalidArgument("--weights {} is unknown; use {}", name, kWeightsAsNames);
}

}  // namespace tandem
