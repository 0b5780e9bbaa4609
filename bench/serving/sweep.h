#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "bench/serving/backend.h"
#include "bench/serving/runner.h"
#include "bench/serving/schedule.h"
#include "bench/serving/sweep_plan.h"
#include "nlohmann/json.hpp"

namespace tandem::loadgen {

// Serves with the strategy of the point, sends the schedule and returns what came of it.
using PointRunner = std::function<absl::StatusOr<nlohmann::ordered_json>(const SweepPoint& point,
                                                                         const Schedule& schedule)>;

enum class SweepMode : uint8_t {
  kRun,
  kDryRun,  // prints the points and the hashes of their schedules, and runs and writes nothing
};

// Runs the points of a valid plan that `folder` has no results of, and then writes report.md,
// report.html and sweep.json there, from all results. Prints a line per point. FAILED_PRECONDITION,
// before anything runs, when a result in the folder belongs to another plan. The error of a point
// ends the sweep; the results so far stay.
absl::Status RunSweep(const SweepPlan& plan, const std::string& folder, SweepMode mode,
                      const PointRunner& run_point);

// The server that answered a schedule.
struct PointServer {
  std::string backend;  // the kind of server
  std::string model;
  bool has_each_token = true;  // false: the gaps between tokens are means of several
};

// How the schedule of a point is sent.
RunOptions PointRunOptions();

// The first twentieth of the time. Requests that arrive before its end are sent, and not judged,
// while the load builds up.
Duration WarmUpOf(const Schedule& schedule);

// Judges the answers by the objectives of the plan.
nlohmann::ordered_json PointResult(const SweepPlan& plan, const SweepPoint& point,
                                   const Schedule& schedule, const RunResult& run,
                                   const PointServer& server);

// "mixed at 4 req/s, seed 1, auto"
std::string NameOf(const SweepPoint& point);

// Sends the schedule to a server and judges the answers. INVALID_ARGUMENT when a request does not
// fit into the server's context. A point at which no request was good is a result, too.
absl::StatusOr<nlohmann::ordered_json> MeasurePoint(const SweepPlan& plan, const SweepPoint& point,
                                                    const Schedule& schedule, Backend& backend);

}  // namespace tandem::loadgen
