#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/simulator/route_replay.h"
#include "bench/simulator/simulated_point.h"

namespace tandem::simulator {

// Which loads and links a router with one worker of each role is put before.
struct CrossoverPlan {
  SimulatedMachines machines;
  std::string policy = "auto";
  std::vector<double> links_gb_per_s;  // ascending; in bytes of the model
  std::vector<int32_t> prompts;        // tokens
  // Shares of its time for which one worker would compute prompts, if it got all of them: these and
  // the prompt's length make the rate of requests.
  std::vector<double> loads;
  int32_t output_tokens = 64;
  int32_t requests = 200;  // of each cell at least, and those of 5 seconds
  int32_t samples = 20;    // of these are replayed on both routes; 0: none
  uint64_t seed = 1;
};

// INVALID_ARGUMENT names the flag and its value.
absl::Status Validate(const CrossoverPlan& plan);

// A request that was replayed on both routes.
struct CrossoverSample {
  size_t request = 0;  // its position in the schedule
  v1::Route taken = v1::ROUTE_UNIFIED;
  RouteCosts replayed;
  // The costs by which the router decided; nothing where it had no prediction for one of them.
  std::optional<double> predicted_unified_ms;
  std::optional<double> predicted_disaggregated_ms;

  // Whether the route matters: the two costs differ by more than 5% of the lower one.
  bool is_decisive() const;
  double advantage_ms() const {  // of the disaggregated route
    return replayed.unified.total_ms() - replayed.disaggregated.total_ms();
  }
};

// Shares of some samples on the disaggregated route.
struct CrossoverShares {
  int32_t samples = 0;
  double predicted = 0;  // for which it was predicted to cost less
  double chosen = 0;
  double replayed = 0;  // for which it did
  double foreseen = 0;  // for which prediction and replay agree on the route that costs less
};

// Counts only samples that are decisive and were predicted.
CrossoverShares SharesOf(const std::vector<CrossoverSample>& samples);

// One run.
struct CrossoverCell {
  double link_gb_per_s = 0;
  int32_t prompt = 0;
  double load = 0;
  double rate = 0;  // requests/s
  int32_t requests = 0;
  // Shares of all requests ...
  double chosen = 0;     // that took the disaggregated route
  double predicted = 0;  // for which it was predicted to cost less; of those with both predictions
  double median_advantage_ms = 0;  // predicted: cost of the unified route less that of the other
  // None also where requests failed, so that there is nothing to compare.
  std::vector<CrossoverSample> samples;
  CrossoverShares decisive;  // of the samples for which the route matters, and which were predicted
  double regret_ms = 0;      // what the chosen routes cost more than the better ones, summed up
  double oracle_ms = 0;      // what the better ones cost
  // By how much the replay of the routes differs from the run, as a share of the time of all
  // requests.
  double replay_difference = 0;
};
// The regret of all cells together, in percent of what an oracle's choices would have cost.
double RegretPercent(const std::vector<CrossoverCell>& cells);
// The percentage of the decisive samples of all cells for which the better route was foreseen.
double ForeseenPercent(const std::vector<CrossoverCell>& cells);

// By load, prompt and link. `progress` is called after each cell.
absl::StatusOr<std::vector<CrossoverCell>> RunCrossover(
    const CrossoverPlan& plan, const std::function<void(const CrossoverCell&)>& progress);

// Where a share passes one half along the links.
struct Crossing {
  enum class Kind : uint8_t {
    kAt,     // at `link_gb_per_s`, between two links, on a logarithmic scale
    kBelow,  // at a slower link than the slowest of the plan: always disaggregated
    kAbove,  // at a faster link than the fastest of the plan: always unified
  };
  Kind kind = Kind::kAbove;
  double link_gb_per_s = 0;
};
// `shares` belong to `links`, which ascend. The last crossing, where there are several.
Crossing CrossingOf(const std::vector<double>& links, const std::vector<double>& shares);

}  // namespace tandem::simulator
