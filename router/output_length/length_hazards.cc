#include "router/output_length/length_hazards.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

constexpr double kPriorMean = 256;
constexpr double kPowerLawFrom = 2 * kPriorMean;

BinProbabilities MakePrior() {
  BinProbabilities prior;
  for (int32_t bin = 0; bin < LengthBins::kCount; ++bin) {
    const double begin = LengthBins::Begin(bin);
    const double width = LengthBins::End(bin) - begin;
    const double per_token = std::min(1 / kPriorMean, 2 / std::max(begin, kPowerLawFrom));
    prior[bin] = static_cast<float>(1 - std::pow(1 - per_token, width));
  }
  return prior;
}

// Finds the median and the 90th percentile while the probability mass is laid out from short to
// long.
class Quantiles {
 public:
  Quantiles(double first_length) : p50(first_length), p90(first_length) {}

  // `mass` is spread evenly over the lengths from `begin` to `last`.
  void Add(double mass, double begin, double last) {
    Look(0.5, mass, begin, last, p50);
    Look(0.9, mass, begin, last, p90);
    sum_ += mass;
  }

  double p50;
  double p90;

 private:
  void Look(double quantile, double mass, double begin, double last, double& result) const {
    if (mass <= 0 || quantile <= sum_ || quantile > sum_ + mass) return;
    result = begin + (quantile - sum_) / mass * (last - begin);
  }

  double sum_ = 0;
};

}  // namespace

const BinProbabilities& PriorProbabilities() {
  static const BinProbabilities prior = MakePrior();
  return prior;
}

void LengthHazards::Observe(int32_t length, FinishKind kind) {
  ++observations_;
  for (Bin& bin : bins_) bin = {.reached = bin.reached * keep_, .ended = bin.ended * keep_};
  const int32_t last = LengthBins::Of(length);
  for (int32_t bin = 0; bin < last; ++bin) bins_[bin].reached += 1;
  if (kind == FinishKind::kStopped) {
    bins_[last].reached += 1;
    bins_[last].ended += 1;
    return;
  }
  // An output that was capped went through only a part of its last bin.
  const int32_t begin = LengthBins::Begin(last);
  const int32_t end = LengthBins::End(last);
  bins_[last].reached += static_cast<float>(std::min(length + 1, end) - begin) / (end - begin);
}

void LengthHazards::Refine(float weight, BinProbabilities& probabilities) const {
  for (int32_t bin = 0; bin < LengthBins::kCount; ++bin) {
    const Bin& seen = bins_[bin];
    probabilities[bin] = (seen.ended + weight * probabilities[bin]) / (seen.reached + weight);
  }
}

LengthForecast Forecast(const BinProbabilities& probabilities, int32_t emitted,
                        int32_t max_tokens) {
  const int32_t shortest = std::min(emitted + 1, max_tokens);
  double left = 1;  // the probability that the output is at least as long as `begin`
  double mean = 0;
  Quantiles quantiles(shortest);
  int32_t begin = shortest;
  for (int32_t bin = LengthBins::Of(shortest); bin < LengthBins::kCount && begin < max_tokens;
       ++bin) {
    const int32_t end = LengthBins::End(bin);
    if (begin >= end) break;  // the output is longer than any bin already
    // An output that has passed a part of the bin can no longer end there.
    const double ahead =
        static_cast<double>(end - begin) / static_cast<double>(end - LengthBins::Begin(bin));
    const double whole = probabilities[bin];
    const double behind = whole * (1 - ahead);
    const double ends = behind < 1 ? whole * ahead / (1 - behind) : 1;
    const int32_t cut = std::min(end, max_tokens);
    const double mass = left * ends * (cut - begin) / (end - begin);
    mean += mass * 0.5 * (begin + cut - 1);
    quantiles.Add(mass, begin, cut - 1);
    left -= mass;
    begin = cut;
  }
  // The probability that is left: the output is cut at max_tokens, or is longer than any bin.
  const int32_t longest = begin >= max_tokens ? max_tokens : begin;
  mean += left * longest;
  quantiles.Add(left + 1e-9, longest, longest);
  return {.mean = mean, .p50 = quantiles.p50, .p90 = quantiles.p90, .observations = 0};
}

}  // namespace tandem
