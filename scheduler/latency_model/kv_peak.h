#pragma once

#include <vector>

#include "scheduler/latency_model/worker_state.h"

namespace tandem {

// The most tokens of KV that these sequences hold together at any time, when each grows by one
// token per step and frees its KV at its end.
double PeakKvTokens(std::vector<DecodeGroup> sequences);

}  // namespace tandem
