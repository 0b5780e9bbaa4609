#include "bench/simulator/capacity.h"

#include <algorithm>

#include "fmt/format.h"

namespace tandem::simulator {
namespace {

class Search {
 public:
  Search(double attainment, const std::function<CapacityProbe(const FleetSize&)>& run)
      : attainment_(attainment), run_(run) {}

  CapacityProbe Probe(const FleetSize& size) {
    const auto known = std::ranges::find(plan_.probes, size, &CapacityProbe::size);
    if (known != plan_.probes.end()) return *known;
    plan_.probes.push_back(run_(size));
    return plan_.probes.back();
  }
  bool Attains(const FleetSize& size) { return Probe(size).attainment.share >= attainment_; }

  // The fewest workers, from 1 to `most`, with which the fleet attains; nothing when even `most` do
  // not. Doubles first, because small fleets run faster than large ones.
  std::optional<int32_t> Fewest(int32_t most, const std::function<FleetSize(int32_t)>& size_of) {
    int32_t fails = 0;
    int32_t holds = 1;
    while (!Attains(size_of(holds))) {
      if (holds == most) return std::nullopt;
      fails = holds;
      holds = std::min(2 * holds, most);
    }
    while (holds - fails > 1) {
      const int32_t middle = fails + (holds - fails) / 2;
      (Attains(size_of(middle)) ? holds : fails) = middle;
    }
    return holds;
  }

  std::optional<CapacityProbe> BestSplit(const FleetSize& most) {
    const auto prefill = Fewest(most.prefill, [&most](int32_t count) {
      return FleetSize{.prefill = count, .decode = most.decode};
    });
    if (!prefill) return std::nullopt;
    const auto decode = Fewest(most.decode, [&most](int32_t count) {
      return FleetSize{.prefill = most.prefill, .decode = count};
    });
    if (!decode) return std::nullopt;
    for (int32_t sum = *prefill + *decode; sum <= most.prefill + most.decode; ++sum) {
      std::optional<CapacityProbe> best;
      const int32_t last = std::min(most.prefill, sum - *decode);
      for (int32_t p = std::max(*prefill, sum - most.decode); p <= last; ++p) {
        const CapacityProbe probe = Probe({.prefill = p, .decode = sum - p});
        if (!best || probe.attainment.share > best->attainment.share) best = probe;
      }
      if (best && best->attainment.share >= attainment_) return best;
    }
    return std::nullopt;
  }

  CapacityPlan Run(const FleetSize& most) {
    if (most.unified > 0) {
      const auto size = [](int32_t count) { return FleetSize{.unified = count}; };
      if (const auto fewest = Fewest(most.unified, size)) plan_.unified = Probe(size(*fewest));
    }
    if (most.prefill > 0 && most.decode > 0) plan_.disaggregated = BestSplit(most);
    return std::move(plan_);
  }

 private:
  const double attainment_;
  const std::function<CapacityProbe(const FleetSize&)>& run_;
  CapacityPlan plan_;
};

}  // namespace

std::string ToText(const FleetSize& size) {
  if (size.unified > 0) return fmt::format("{} unified", size.unified);
  return fmt::format("{} prefill + {} decode", size.prefill, size.decode);
}

CapacityPlan FindCapacity(const FleetSize& most, double attainment,
                          const std::function<CapacityProbe(const FleetSize&)>& run) {
  return Search(attainment, run).Run(most);
}

}  // namespace tandem::simulator
