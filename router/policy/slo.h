#pragma once

#include <optional>

#include "scheduler/latency_model/step_features.h"

namespace tandem {

// What a request should keep to. Nothing where no limit was set.
struct Slo {
  std::optional<ModelTime> ttft;
  std::optional<ModelTime> tpot;
};

}  // namespace tandem
