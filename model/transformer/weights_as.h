#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/status.h"

namespace tandem {

// What the matrices of a checkpoint become when they are loaded. Norm weights and biases stay f32.
enum class WeightsAs : uint8_t {
  kStored,      // as the checkpoint has them
  kInt8,        // quantised, embedding and head, too (kernels/weight_format.h)
  kInt8Layers,  // likewise, but embedding and head stay as they are
};

inline constexpr std::array kAllWeightsAs = {WeightsAs::kStored, WeightsAs::kInt8,
                                             WeightsAs::kInt8Layers};
inline constexpr char kWeightsAsNames[] = "stored, int8, int8-layers";

constexpr std::string_view Name(WeightsAs as) {
  constexpr std::string_view kNames[] = {"stored", "int8", "int8-layers"};
  return kNames[static_cast<size_t>(as)];
}

// How embedding and head are kept: kStored or kInt8.
inline WeightsAs OfVocabulary(WeightsAs as) {
  return as == WeightsAs::kInt8Layers ? WeightsAs::kStored : as;
}

// The name of the way, or of what the checkpoint has.
constexpr std::string_view NameOfWeights(WeightsAs as, DType stored) {
  return as == WeightsAs::kStored ? Name(stored) : Name(as);
}

// INVALID_ARGUMENT for another name; the flag is --weights.
inline absl::StatusOr<WeightsAs> ParseWeightsAs(std::string_view name) {
  for (const WeightsAs as : kAllWeightsAs) {
    if (Name(as) == name) return as;
  }
  return InvalidArgument("--weights {} is unknown; use {}", name, kWeightsAsNames);
}

}  // namespace tandem
