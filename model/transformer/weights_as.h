#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/status.h"

namespace tandem {

// The form of a checkpoint's matrices in memory. Norm weights and biases stay f32.
enum class WeightsAs : uint8_t {
  kStored,      // as the checkpoint has them
  kInt8,        // quantised, embedding and head, too (kernels/weight_format.h)
  kInt8Layers,  // as kInt8, but embedding and head stay as they are
};

inline constexpr std::array kAllWeightsAs = {WeightsAs::kStored, WeightsAs::kInt8,
                                             WeightsAs::kInt8Layers};
inline constexpr char kWeightsAsNames[] = "stored, int8, int8-layers";

constexpr std::string_view Name(WeightsAs as) {
  constexpr std::string_view kNames[] = {"stored", "int8", "int8-layers"};
  return kNames[static_cast<size_t>(as)];
}

// How embedding and head are kept when the other matrices are kept as `as`: kStored or kInt8.
inline WeightsAs OfVocabulary(WeightsAs as) {
  return as == WeightsAs::kInt8Layers ? WeightsAs::kStored : as;
}

// The name of `as`, or for kStored the name of the checkpoint's dtype.
constexpr std::string_view NameOfWeights(WeightsAs as, DType stored) {
  return as == WeightsAs::kStored ? Name(stored) : Name(as);
}

// Parses the value of the flag --weights. INVALID_ARGUMENT for an unknown name.
inline absl::StatusOr<WeightsAs> ParseWeightsAs(std::string_view name) {
  for (const WeightsAs as : kAllWeightsAs) {
    if (Name(as) == name) return as;
  }
  return InvalidArgument("--weights {} is unknown; use {}", name, kWeightsAsNames);
}

}  // namespace tandem
