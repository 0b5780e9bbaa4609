#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine.h"

namespace tandem {

// What one engine made of a load.
struct ServingResult {
  std::vector<std::vector<int32_t>> answers;  // [request * choice] token ids
  std::vector<double> ttft_ms;                // per request, from its submission
  double seconds = 0;                         // from the first submission to the last end
  EngineStats stats;
};

enum class Arrivals : uint8_t { kTogether, kOneAtATime };

// A unified engine of this process, and requests to it.
struct ServingLoad {
  std::string model_dir;
  int32_t threads = 0;
  EngineOptions options;  // layout and context are filled in from the model
  std::vector<EngineRequest> requests;
  Arrivals arrivals = Arrivals::kTogether;
};

// Loads the model and serves the load once. A request that fails is an error.
absl::StatusOr<ServingResult> Serve(const ServingLoad& load);

// Token ids of [0, vocab) drawn from `seed`.
std::vector<int32_t> RandomTokens(uint64_t seed, int32_t count, int32_t vocab_size);

}  // namespace tandem
