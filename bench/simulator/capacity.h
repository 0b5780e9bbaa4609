#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/serving/distribution.h"

namespace tandem::simulator {

// So many workers of each role.
struct FleetSize {
  int32_t unified = 0;
  int32_t prefill = 0;
  int32_t decode = 0;

  int32_t workers() const { return unified + prefill + decode; }
  friend bool operator==(const FleetSize&, const FleetSize&) = default;
};
// "3 unified", "2 prefill + 5 decode"
std::string ToText(const FleetSize& size);

// What a run with a fleet of one size gave.
struct CapacityProbe {
  FleetSize size;
  loadgen::ShareInterval attainment;  // requests within the objectives
  double goodput = 0;                 // requests/s
};

// The smallest fleets that carry a load.
struct CapacityPlan {
  std::vector<CapacityProbe> probes;  // in the order in which they ran
  std::optional<CapacityProbe> unified;
  // The best split of the smallest number of workers; among equal numbers the one that attains
  // most.
  std::optional<CapacityProbe> disaggregated;
};

// Searches for the smallest fleets at which a share of at least `attainment` of the requests is
// good. `most` bounds the workers of each role; a role with 0 takes no part. It assumes that one
// worker more is never worse. First the fewest prefill workers with `most.decode` decode workers,
// and the fewest decode workers with `most.prefill` prefill workers: no smaller fleet can do. Then
// all splits from there on, by their sum. `run` runs a fleet; it is called once for each size at
// most.
CapacityPlan FindCapacity(const FleetSize& most, double attainment,
                          const std::function<CapacityProbe(const FleetSize&)>& run);

}  // namespace tandem::simulator
