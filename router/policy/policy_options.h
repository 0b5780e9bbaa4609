#pragma once

#include <optional>

#include "router/policy/classic_model.h"

namespace tandem {

// The settings of routing policies. Each field names the policy that reads it.
struct PolicyOptions {
  // auto: the relative error that predictions are taken to have at least. The policy leaves the
  // least loaded placement only for a gain that is larger than the error of what the two placements
  // differ in.
  double least_error = 0.05;
  // classic: its coefficients, without which the policy cannot be made.
  std::optional<ClassicCoefficients> classic = std::nullopt;
};

}  // namespace tandem
