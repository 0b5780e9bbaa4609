#pragma once

#include <memory>

#include "scheduler/policy.h"

namespace tandem {

std::unique_ptr<SchedulingPolicy> NewSchedulingPolicy(SchedulingPolicyKind kind);

// Each other file of this folder has one of the policies.
std::unique_ptr<SchedulingPolicy> NewFairPolicy();
std::unique_ptr<SchedulingPolicy> NewDeadlinePolicy();

}  // namespace tandem
