#pragma once

#include <string>
#include <vector>

#include "engine/profile/cost_parameters.h"
#include "engine/profile/measure_steps.h"

namespace tandem {

// The results of a profile as text for the terminal: the six scalars, the coefficients with their
// intervals, the held-out errors, and the steps that stayed noisy.
std::string ProfileText(const CostParameters& parameters, const std::vector<MeasuredStep>& steps);

// The results of a profile as an HTML page, with plots of the measured steps and of the model. It
// is one file that loads nothing else.
std::string ProfilePage(const CostParameters& parameters, const std::vector<MeasuredStep>& steps);

}  // namespace tandem
