#pragma once

#include <memory>

#include "scheduler/policy.h"

namespace tandem {

// One factory per file of this directory; policy.cc maps kinds to them.
std::unique_ptr<SchedulingPolicy> NewFairPolicy();
std::unique_ptr<SchedulingPolicy> NewDeadlinePolicy();

}  // namespace tandem
