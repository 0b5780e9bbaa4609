#include "bench/serving/arrivals.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "bench/serving/random.h"

namespace tandem::loadgen {
namespace {

// No run at a lower rate would end, and the gaps of a higher one are shorter than the clock's tick.
constexpr double kLowestRate = 1e-6;
constexpr double kHighestRate = 1e9;

absl::Status CheckRate(const char* flag, double rate) {
  if (rate >= kLowestRate && rate <= kHighestRate) return absl::OkStatus();
  return InvalidArgument("{}={}: give requests per second from {} to {}", flag, rate, kLowestRate,
                         kHighestRate);
}

// Requests/s at request `index` of `count`.
double RateAt(const ArrivalOptions& options, int index, int count) {
  const double progress = static_cast<double>(index) / std::max(count - 1, 1);
  switch (options.ramp) {
    case Ramp::kLinear:
      return options.ramp_start + (options.ramp_end - options.ramp_start) * progress;
    case Ramp::kExponential:
      return options.ramp_start * std::pow(options.ramp_end / options.ramp_start, progress);
    case Ramp::kNone:
      break;
  }
  return options.rate;
}

}  // namespace

absl::Status Validate(const ArrivalOptions& options) {
  if (!(options.burstiness > 0)) {
    return InvalidArgument(
        "--burstiness={}: give a number above 0; 1 is a Poisson process, inf is constant",
        options.burstiness);
  }
  if (options.ramp != Ramp::kNone) {
    if (auto status = CheckRate("--ramp-up-start-rps", options.ramp_start); !status.ok()) {
      return status;
    }
    return CheckRate("--ramp-up-end-rps", options.ramp_end);
  }
  if (options.rate == std::numeric_limits<double>::infinity()) return absl::OkStatus();
  return CheckRate("--request-rate", options.rate);
}

std::vector<Duration> MakeArrivals(const ArrivalOptions& options, int count, uint64_t seed) {
  std::vector<Duration> arrivals(static_cast<size_t>(count), Duration::zero());
  if (options.ramp == Ramp::kNone && std::isinf(options.rate)) return arrivals;
  RandomStream random(seed);
  std::vector<double> seconds;
  double now = 0;
  for (int i = 0; i < count; ++i) {
    now += random.GammaOfMeanOne(options.burstiness) / RateAt(options, i, count);
    seconds.push_back(now);
  }
  double stretch = 1;
  if (options.normalize && options.ramp == Ramp::kNone && now > 0) {
    stretch = count / options.rate / now;
  }
  for (int i = 0; i < count; ++i) {
    arrivals[i] = Duration(std::llround(seconds[i] * stretch * 1e9));
  }
  return arrivals;
}

}  // namespace tandem::loadgen
