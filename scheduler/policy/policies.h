#pragma once

#include <memory>

#include "scheduler/policy.h"

namespace tandem {

std::unique_ptr<SchedulingPolicy> NewSchedulingPolicy(SchedulingPolicyKind kind);

// Each policy is defined in the source file of this folder that bears its name.
std::unique_ptr<SchedulingPolicy> NewFairPolicy();
std::unique_ptr<SchedulingPolicy> NewDeadlinePolicy();

}  // namespace tandem
