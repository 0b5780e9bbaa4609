#include "scheduler/latency_model/step_fit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <string_view>

#include "base/status.h"
#include "scheduler/latency_model/component_fit.h"

namespace tandem {
namespace {

constexpr int kBootstraps = 300;
constexpr size_t kLeastSamples = 6;  // least number of samples of prefills, and of decodes

using Samples = std::vector<const StepSample*>;

bool HasPrefill(const StepSample& sample) { return sample.features.prefill_tokens > 0; }
bool HasDecode(const StepSample& sample) { return sample.features.decode_sequences > 0; }

struct Sorted {
  Samples prefill;
  Samples decode;
  Samples grid;
  Samples curve;
  Samples held_out;
};

absl::StatusOr<Sorted> Sort(std::span<const StepSample> samples) {
  Sorted sorted;
  for (const StepSample& sample : samples) {
    const auto is_time = [](double ms) { return std::isfinite(ms) && ms > 0; };
    if (sample.ms.empty() || !std::all_of(sample.ms.begin(), sample.ms.end(), is_time)) {
      return InvalidArgument("a step of {} prefill tokens and {} decodes has no time above 0 ms",
                             sample.features.prefill_tokens, sample.features.decode_sequences);
    }
    if (sample.use == SampleUse::kHeldOut) sorted.held_out.push_back(&sample);
    if (sample.use == SampleUse::kGrid) sorted.grid.push_back(&sample);
    if (sample.use == SampleUse::kCurve) sorted.curve.push_back(&sample);
    if (sample.use != SampleUse::kFit) continue;
    if (HasPrefill(sample) == HasDecode(sample)) {
      return InvalidArgument("a step to fit alpha or beta has {} prefill tokens and {} decodes",
                             sample.features.prefill_tokens, sample.features.decode_sequences);
    }
    (HasPrefill(sample) ? sorted.prefill : sorted.decode).push_back(&sample);
  }
  if (sorted.prefill.size() < kLeastSamples || sorted.decode.size() < kLeastSamples) {
    return InvalidArgument("a fit needs {} kinds of prefills and of decodes: there are {} and {}",
                           kLeastSamples, sorted.prefill.size(), sorted.decode.size());
  }
  return sorted;
}

std::vector<TimedStep> Medians(const Samples& samples) {
  std::vector<TimedStep> steps;
  for (const StepSample* sample : samples) {
    steps.push_back({.features = sample->features, .ms = MedianMs(sample->ms)});
  }
  return steps;
}

// A bootstrap resample: as many samples as there are, drawn with replacement, each with the median
// of repeats that are drawn with replacement as well.
std::vector<TimedStep> Resample(const Samples& samples, std::mt19937_64& random) {
  const auto pick = [&random](size_t count) {
    return std::uniform_int_distribution<size_t>(0, count - 1)(random);
  };
  std::vector<TimedStep> steps;
  std::vector<double> ms;
  for (size_t i = 0; i < samples.size(); ++i) {
    const StepSample& sample = *samples[pick(samples.size())];
    ms.clear();
    for (size_t j = 0; j < sample.ms.size(); ++j) ms.push_back(sample.ms[pick(sample.ms.size())]);
    steps.push_back({.features = sample.features, .ms = MedianMs(ms)});
  }
  return steps;
}

// The step curve from steps of one decode beside a growing chunk, less the cost of their pairs.
std::vector<CurvePoint> CurveOf(const std::vector<TimedStep>& steps, double pair_ms) {
  std::vector<CurvePoint> curve;
  for (const TimedStep& step : steps) {
    const StepFeatures& f = step.features;
    const double ms = step.ms - pair_ms * static_cast<double>(f.prefill_pairs);
    if (ms > 0) curve.push_back({.tokens = 1.0 * f.prefill_tokens + f.decode_sequences, .ms = ms});
  }
  return curve;
}

// The values of every coefficient over all bootstrap resamples.
class Intervals {
 public:
  void Add(std::string_view name, double value) { draws_[std::string(name)].push_back(value); }
  void AddAll(const StepCoefficients& c) {
    Add("alpha.floor", c.alpha.floor_ms);
    Add("alpha.a0", c.alpha.base_ms);
    Add("alpha.a1", c.alpha.token_ms);
    Add("alpha.a2", c.alpha.pair_ms);
    for (const DecodeCost::Bucket& bucket : c.beta.buckets) {
      Add(fmt::format("beta.b0[{}]", bucket.max_sequences), bucket.base_ms);
    }
    Add("beta.b1", c.beta.sequence_ms);
    Add("beta.b2", c.beta.context_token_ms);
  }
  // The fitted coefficients with their 95% intervals. `fitted` holds one value of each coefficient.
  std::vector<FittedCoefficient> Around(const Intervals& fitted) const {
    std::vector<FittedCoefficient> all;
    for (const auto& [name, value] : fitted.draws_) {
      const auto [low, high] = Range(name);
      all.push_back({.name = name, .value = value.front(), .low = low, .high = high});
    }
    return all;
  }
  std::pair<double, double> Range(const std::string& name) const {
    const auto found = draws_.find(name);
    if (found == draws_.end()) return {};
    std::vector<double> sorted = found->second;
    std::sort(sorted.begin(), sorted.end());
    const auto at = [&sorted](double share) {
      return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
    };
    return {at(0.025), at(0.975)};
  }

 private:
  std::map<std::string, std::vector<double>, std::less<>> draws_;
};

absl::StatusOr<InterferenceGrid> GridOf(const Samples& samples, const StepModel& model) {
  InterferenceGrid grid;
  if (samples.empty()) return grid;
  std::set<int32_t> tokens, sequences, contexts;
  const auto context_of = [](const StepFeatures& f) {
    return static_cast<int32_t>(f.decode_context / f.decode_sequences);
  };
  for (const StepSample* sample : samples) {
    if (!HasPrefill(*sample) || !HasDecode(*sample)) {
      return InvalidArgument("a cell of the gamma table needs prefill tokens and decodes");
    }
    tokens.insert(sample->features.prefill_tokens);
    sequences.insert(sample->features.decode_sequences);
    contexts.insert(context_of(sample->features));
  }
  grid.tokens.assign(tokens.begin(), tokens.end());
  grid.sequences.assign(sequences.begin(), sequences.end());
  grid.context.assign(contexts.begin(), contexts.end());
  const size_t cells = tokens.size() * sequences.size() * contexts.size();
  if (cells != samples.size()) {
    return InvalidArgument("the gamma table has {} cells: its axes need {}", samples.size(), cells);
  }
  grid.gamma_ms.assign(cells, 0);
  const auto index = [](const auto& axis, int32_t value) {
    return static_cast<size_t>(std::lower_bound(axis.begin(), axis.end(), value) - axis.begin());
  };
  for (const StepSample* sample : samples) {
    const StepFeatures& f = sample->features;
    const ModelTime decode =
        model.Step({.decode_sequences = f.decode_sequences, .decode_context = f.decode_context});
    grid.gamma_ms[grid.Index(index(grid.tokens, f.prefill_tokens),
                             index(grid.sequences, f.decode_sequences),
                             index(grid.context, context_of(f)))] =
        std::max(0.0, (MedianMs(sample->ms) - decode.count()) / f.prefill_tokens);
  }
  return grid;
}

std::vector<ComponentError> HeldOutErrors(const Samples& samples, const StepModel& model) {
  std::map<std::string, std::vector<const StepSample*>> kinds;
  for (const StepSample* sample : samples) {
    const char* const kind = !HasDecode(*sample)   ? "prefill"
                             : HasPrefill(*sample) ? "mixed"
                                                   : "decode";
    kinds[kind].push_back(sample);
  }
  std::vector<ComponentError> all;
  for (const auto& [name, members] : kinds) {
    ComponentError& error = all.emplace_back();
    error.name = name;
    error.samples = static_cast<int32_t>(members.size());
    std::vector<double> spreads;
    for (const StepSample* sample : members) {
      const double off = std::abs(model.Step(sample->features).count() / MedianMs(sample->ms) - 1);
      error.mean += off / static_cast<double>(members.size());
      error.max = std::max(error.max, off);
      spreads.push_back(RelativeSpread(sample->ms));
    }
    error.spread = MedianMs(spreads);
  }
  return all;
}

// The parts of the model that are chosen once, before the bootstrap: the floor and the buckets.
struct Shape {
  int32_t floor_below = 0;
  std::vector<int32_t> bucket_ends;
};

Intervals Bootstrap(const Sorted& sorted, const Shape& shape, uint64_t seed) {
  std::mt19937_64 random(seed);
  Intervals draws;
  for (int i = 0; i < kBootstraps; ++i) {
    StepCoefficients c;
    c.alpha = FitPrefill(Resample(sorted.prefill, random), shape.floor_below);
    c.beta = FitDecode(Resample(sorted.decode, random), shape.bucket_ends);
    draws.AddAll(c);
    if (sorted.curve.empty()) continue;
    const auto knee = FindKnee(CurveOf(Resample(sorted.curve, random), c.alpha.pair_ms));
    if (knee) draws.Add("batch_thresh", *knee);
  }
  return draws;
}

}  // namespace

double MedianMs(std::span<const double> ms) {
  std::vector<double> sorted(ms.begin(), ms.end());
  std::sort(sorted.begin(), sorted.end());
  const size_t upper = sorted.size() / 2;
  return sorted.size() % 2 != 0 ? sorted[upper] : (sorted[upper - 1] + sorted[upper]) / 2;
}

double RelativeSpread(std::span<const double> ms) {
  std::vector<double> sorted(ms.begin(), ms.end());
  std::sort(sorted.begin(), sorted.end());
  const auto at = [&sorted](double share) {
    return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5)];
  };
  return (at(0.84) - at(0.16)) / 2 / MedianMs(ms);
}

double MeanError(std::span<const ComponentError> held_out) {
  double sum = 0;
  for (const ComponentError& one : held_out) sum += one.mean;
  return held_out.empty() ? 0 : sum / static_cast<double>(held_out.size());
}

absl::StatusOr<StepFit> FitSteps(std::span<const StepSample> samples, uint64_t seed) {
  ASSIGN_OR_RETURN(const Sorted sorted, Sort(samples));
  const std::vector<TimedStep> prefills = Medians(sorted.prefill);
  const std::vector<TimedStep> decodes = Medians(sorted.decode);
  const Shape shape = {.floor_below = ChooseFloor(prefills), .bucket_ends = ChooseBuckets(decodes)};
  StepFit fit;
  StepCoefficients& c = fit.coefficients;
  c.alpha = FitPrefill(prefills, shape.floor_below);
  c.beta = FitDecode(decodes, shape.bucket_ends);
  ASSIGN_OR_RETURN(const StepModel without_table, StepModel::Create(c));
  ASSIGN_OR_RETURN(c.gamma, GridOf(sorted.grid, without_table));

  const Intervals draws = Bootstrap(sorted, shape, seed);
  Intervals fitted;
  fitted.AddAll(c);
  const auto knee = FindKnee(CurveOf(Medians(sorted.curve), c.alpha.pair_ms));
  if (knee) {
    const auto [low, high] = draws.Range("batch_thresh");
    c.batch_thresh = Knee{.tokens = static_cast<int32_t>(*knee),
                          .low = static_cast<int32_t>(std::clamp(low, 1.0, *knee)),
                          .high = static_cast<int32_t>(std::max(high, *knee))};
    fitted.Add("batch_thresh", *knee);
  }
  fit.intervals = draws.Around(fitted);
  ASSIGN_OR_RETURN(const StepModel model, StepModel::Create(c));
  fit.held_out = HeldOutErrors(sorted.held_out, model);
  return fit;
}

}  // namespace tandem
