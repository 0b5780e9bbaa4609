#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "scheduler/latency_model/step_model.h"
#include "tandem/v1/cost_model.pb.h"

namespace tandem {

// The cost model that a worker reported, ready for predictions. Immutable, so snapshots share it.
struct WorkerCosts {
  StepModel steps;
  v1::CostModel::Source source = v1::CostModel::SOURCE_UNSPECIFIED;
  uint64_t revision = 0;
  double error = 0;  // of the worker's own predictions of its steps, relative to what they took
};

// Reads a reported cost model. INVALID_ARGUMENT names the coefficient that is negative, not finite,
// out of order or too many.
absl::StatusOr<std::shared_ptr<const WorkerCosts>> ReadCosts(const v1::CostModel& report);

// Checks the error that a worker reports of its own predictions: INVALID_ARGUMENT unless it is
// finite and not negative.
absl::Status CheckError(double error);

// The coefficients as a report has them. The other fields of the report are unset.
v1::CostModel ToReport(const StepCoefficients& coefficients);

}  // namespace tandem
