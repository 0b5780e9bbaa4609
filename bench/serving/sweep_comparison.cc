#include "bench/serving/sweep_comparison.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "fmt/format.h"

namespace tandem::loadgen {
namespace {

double MeanGood(const Contender& contender) { return MeanOverSeeds(contender.good).mean; }

Standing StandingOf(const std::optional<SeedMean>& margin, double highest_share) {
  if (highest_share < kLeastShare) return Standing::kNoneHolds;
  if (!margin || margin->mean > kTiePercent) return Standing::kWins;
  return margin->mean >= -kTiePercent ? Standing::kTies : Standing::kLoses;
}

}  // namespace

SeedMean MeanOverSeeds(const std::vector<double>& samples) {
  // 97.5% quantiles of Student's t by degrees of freedom, from 1 on; the last is close enough beyond.
  static constexpr std::array<double, 10> kStudent = {12.706, 4.303, 3.182, 2.776, 2.571,
                                                      2.447,  2.365, 2.306, 2.262, 2.228};
  if (samples.empty()) return {};
  const auto count = static_cast<double>(samples.size());
  double mean = 0;
  for (const double sample : samples) mean += sample / count;
  if (samples.size() == 1) return {.mean = mean};
  double squares = 0;
  for (const double sample : samples) squares += (sample - mean) * (sample - mean);
  const double deviation = std::sqrt(squares / (count - 1));
  const size_t freedom = samples.size() - 1;
  const double student = kStudent[std::min(freedom, kStudent.size()) - 1];
  return {.mean = mean, .half_width = student * deviation / std::sqrt(count)};
}

bool Adapts(const SweepStrategy& strategy) { return strategy.policy == "auto"; }

std::optional<SeedMean> MarginPercent(const std::vector<double>& own,
                                      const std::vector<double>& other) {
  const double base = MeanOverSeeds(other).mean;
  if (base == 0) {
    if (MeanOverSeeds(own).mean == 0) return SeedMean{};
    return std::nullopt;
  }
  std::vector<double> differences;
  for (size_t i = 0; i < std::min(own.size(), other.size()); ++i) {
    differences.push_back(100 * (own[i] - other[i]) / base);
  }
  return MeanOverSeeds(differences);
}

std::string_view Name(Standing standing) {
  switch (standing) {
    case Standing::kWins:
      return "wins";
    case Standing::kTies:
      return "ties";
    case Standing::kLoses:
      return "loses";
    case Standing::kNoneHolds:
      return "none holds";
  }
  return "";
}

std::vector<Comparison> Compare(const std::vector<Contender>& contenders) {
  const Contender* best = nullptr;
  double highest_share = 0;
  for (const Contender& one : contenders) {
    highest_share = std::max(highest_share, one.share);
    if (!one.adapts && (best == nullptr || MeanGood(one) > MeanGood(*best))) best = &one;
  }
  std::vector<Comparison> comparisons;
  if (best == nullptr) return comparisons;
  for (const Contender& one : contenders) {
    if (!one.adapts) continue;
    Comparison comparison{.name = one.name,
                          .share = one.share,
                          .best_other = best->name,
                          .best_share = best->share,
                          .margin = MarginPercent(one.good, best->good)};
    for (const Contender& other : contenders) {
      if (other.adapts) continue;
      comparison.margins.push_back({other.name, MarginPercent(one.good, other.good)});
    }
    comparison.standing = StandingOf(comparison.margin, highest_share);
    comparisons.push_back(std::move(comparison));
  }
  return comparisons;
}

const std::string& WinnerOf(const std::vector<Contender>& contenders) {
  return std::ranges::max_element(contenders, {}, MeanGood)->name;
}

std::string MarginText(const std::optional<SeedMean>& margin) {
  if (!margin) return "no other holds";
  if (margin->half_width == 0) return fmt::format("{:+.1f}%", margin->mean);
  return fmt::format("{:+.1f} ± {:.1f}%", margin->mean, margin->half_width);
}

}  // namespace tandem::loadgen
