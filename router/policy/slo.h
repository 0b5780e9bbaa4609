#pragma once

#include <optional>

#include "scheduler/latency_model/step_features.h"

namespace tandem {

// The latency objectives of a request. One without a value does not apply.
struct Slo {
  std::optional<ModelTime> ttft;
  std::optional<ModelTime> tpot;
};

}  // namespace tandem
