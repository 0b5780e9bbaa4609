#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/serving/goodput.h"
#include "nlohmann/json_fwd.hpp"

namespace tandem::loadgen {

// A way to serve: a routing policy among workers of some roles.
struct SweepStrategy {
  std::string name;
  std::string policy;  // as for `tandem up --policy`
  int prefill = 0;     // workers of each role
  int decode = 0;
  int unified = 0;

  int workers() const { return prefill + decode + unified; }
};

// "NAME:POLICY:prefill=1,decode=1,unified=2". INVALID_ARGUMENT says what is wrong, and of an
// unknown policy which there are.
absl::StatusOr<SweepStrategy> ParseStrategy(const std::string& text,
                                            const std::vector<std::string>& policies);

// The strategies that `workers` (at least 2) allow: all unified, every division into prefill and
// decode workers, and, from 3 on, each of `policies` among workers of all roles.
std::vector<SweepStrategy> UsualStrategies(int workers, const std::vector<std::string>& policies);

// Everything that a sweep measures.
struct SweepPlan {
  std::vector<SweepStrategy> strategies;
  std::vector<std::string> workloads;
  std::vector<double> rates;                            // requests/s
  std::map<std::string, std::vector<double>> rates_of;  // in place of `rates`, by workload
  std::vector<uint64_t> seeds;
  int32_t requests = 1000;  // of each point, at least
  double min_seconds = 0;   // at its rate, each point has requests for this long
  int32_t context_tokens = 2048;
  Objectives objectives;
  std::string command = "tandem up";  // that serves, or takes the place of what serves
  // The arguments of the command besides those of the strategy: model, device and the like.
  std::vector<std::string> arguments;
  std::string build;  // of the binary that serves
};

// The rates of one workload of the plan.
const std::vector<double>& RatesOf(const SweepPlan& plan, const std::string& workload);

// The requests of a point with this rate.
int32_t RequestsOf(const SweepPlan& plan, double rate);

// "short=10,20,40" as an element of `rates_of`. INVALID_ARGUMENT quotes the text.
absl::Status ParseRatesOf(const std::string& text, SweepPlan& plan);

// INVALID_ARGUMENT names the flag and its value. All strategies must have equally many workers.
absl::Status Validate(const SweepPlan& plan);

// One run: a strategy under one load.
struct SweepPoint {
  SweepStrategy strategy;
  std::string workload;
  double rate = 0;
  uint64_t seed = 0;
};

// Strategies follow one another under the same load, so that a machine that changes with time
// changes for all of them.
std::vector<SweepPoint> PointsOf(const SweepPlan& plan);

// What a point's result depends on; kept with the result.
nlohmann::ordered_json KeyOf(const SweepPlan& plan, const SweepPoint& point);
// A name for a file, different for each point of a plan.
std::string FileNameOf(const SweepPoint& point);

}  // namespace tandem::loadgen
