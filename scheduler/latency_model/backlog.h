#pragma once

#include "scheduler/latency_model/worker_state.h"

namespace tandem {

// How many requests that are yet to come find a worker, or a link, busy with what it has. What needs
// `work` to be done is busy for work / (1 - rho) when more comes meanwhile for a share rho of its
// time, and near rho = 1 that is much longer than the work.

// The share of its time that the worker needs for what usually comes to it: for prompts, and where
// it decodes too, for what their outputs add to steps that run anyway.
double UtilizationOf(const WorkerState& worker);

// The sequences that come before what is busy with `work` has none left. Arrivals are foreseen for
// twice as long as they have been coming, so that the number stays finite at and beyond a
// utilization of 1.
double ArrivalsWithin(const ArrivalRates& arrivals, ModelTime work, double utilization);

}  // namespace tandem
