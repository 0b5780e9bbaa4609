#pragma once

#include "scheduler/latency_model/worker_state.h"

namespace tandem {

// How many requests yet to arrive find a worker, or a link, busy with its present backlog. A
// backlog that takes the time `work` keeps it busy for work / (1 - rho) when new arrivals meanwhile
// take a share rho of its time, and near rho = 1 that is much longer than `work`.

// The share of its time that the worker needs for the requests that usually arrive: for their
// prompts, and where it decodes too, for what their outputs add to steps that run anyway.
double UtilizationOf(const WorkerState& worker);

// The number of sequences that arrive before a worker or link with a backlog of `work` has none
// left. Arrivals are assumed to continue for twice as long as they have been observed, so that the
// number stays finite at and beyond a utilization of 1.
double ArrivalsWithin(const ArrivalRates& arrivals, ModelTime work, double utilization);

}  // namespace tandem
