#pragma once

#include "router/policy/placement.h"

namespace tandem {

// How busy a worker is, by counts alone. It only orders workers.
double LoadOf(const WorkerView& worker);
// The load of the busier worker of a placement.
double LoadOf(const Placement& placement);

}  // namespace tandem
