#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/statusor.h"
#include "engine/profile/packed_model.h"
#include "engine/profile/scored_text.h"
#include "kvstore/codec/kv_sensitivity.h"

namespace tandem {

// The number of tokens that a measurement takes.
inline constexpr int32_t kSensitivityTokens = ScoredText::kTokens;

// Called with the number of predictions that were made, and how many there will be.
using SensitivityProgress = std::function<void(int64_t done, int64_t total)>;

// Measures how much the predictions of a model change when K, or V, of one layer is rounded: rounds
// the KV of a context coarsely, one layer and side at a time, and compares the predictions of the
// tokens behind it with those from exact KV. Takes a forward pass of ScoredText::kScoredTokens for
// each layer and side; the rest of its time hardly counts. On the CPU equal input gives equal
// numbers. UNIMPLEMENTED for a model whose KV no codec rounds, else the errors of ScoredText::Open.
absl::StatusOr<KvSensitivity> MeasureKvSensitivity(const ModelSource& source,
                                                   std::span<const int32_t> tokens,
                                                   const SensitivityProgress& progress);

}  // namespace tandem
