#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/serving/sweep_plan.h"

namespace tandem::loadgen {

// The mean over seeds, and half the width of its 95% interval (Student's t); 0 for one sample.
struct SeedMean {
  double mean = 0;
  double half_width = 0;
};
SeedMean MeanOverSeeds(const std::vector<double>& samples);

// A strategy under one load. Shares of good requests are compared and not goodput, because goodput
// also falls while a run drains: where all requests are good, strategies would differ by their
// latency.
struct Contender {
  std::string name;
  bool adapts = false;       // its policy chooses by prediction; it is held against the others
  std::vector<double> good;  // shares of good requests, an element per seed
  double share = 0;          // the mean of these
};
// Whether a strategy is one that the others are compared with.
bool Adapts(const SweepStrategy& strategy);

// How much more `own` is than `other`, in percent of the mean of `other`. Both have an element per
// seed, and differences are taken seed by seed, because both answered the same requests. Absent
// where `other` has nothing and `own` has something.
std::optional<SeedMean> MarginPercent(const std::vector<double>& own,
                                      const std::vector<double>& other);

enum class Standing : uint8_t {
  kWins,       // more than kTiePercent above the best of the others
  kTies,       // within kTiePercent of it
  kLoses,      // more than kTiePercent under it
  kNoneHolds,  // with each strategy, fewer than kLeastShare of the requests are good
};
inline constexpr double kTiePercent = 3;
inline constexpr double kLeastShare = 0.1;
std::string_view Name(Standing standing);

// A strategy that adapts against all that do not, under one load.
struct Comparison {
  struct Over {
    std::string name;
    std::optional<SeedMean> percent;
  };
  std::string name;
  double share = 0;
  std::string best_other;          // the one with the highest mean
  double best_share = 0;           // its share of good requests
  std::optional<SeedMean> margin;  // over best_other, in percent
  std::vector<Over> margins;       // over each of the others
  Standing standing = Standing::kTies;
};

// One comparison per contender that adapts; none where all do, or none does.
std::vector<Comparison> Compare(const std::vector<Contender>& contenders);

// The name of the contender with the highest mean; the first among equals. There is at least one.
const std::string& WinnerOf(const std::vector<Contender>& contenders);

// "+4.1 ± 0.8%", "no other holds" where there is no margin.
std::string MarginText(const std::optional<SeedMean>& margin);

}  // namespace tandem::loadgen
