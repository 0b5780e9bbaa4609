#include "transfer/link_probe.h"

#include <algorithm>

#include "base/check.h"

namespace tandem {
namespace {

constexpr uint64_t kLeastBulk = 1 << 20;
constexpr uint64_t kMostBulk = 16 << 20;
constexpr double kBulkSeconds = 0.1;
constexpr uint64_t kBytesForAlarm = 64'000'000;

Duration Median(std::vector<Duration> times) {
  TANDEM_CHECK(!times.empty(), "a probe repeats each timing");
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

LinkProbe Evaluate(const ProbeTimings& timings) {
  const Duration bulk = Median(timings.bulk);
  // A bulk that took little more than nothing at all: the clock and the scheduler, not the link.
  const Duration moving = std::max({bulk - Median(timings.empty), bulk / 2, Duration(1)});
  const Duration frames = Median(timings.many_small) - Median(timings.one_small);
  return {.gigabytes_per_second = static_cast<double>(timings.bulk_bytes) / 1e9 / Seconds(moving),
          .setup = timings.first,
          .operation = std::max(Duration(0), frames / (kProbeSmallFrames - 1))};
}

uint64_t BulkBytes(uint64_t bytes, Duration time) {
  const double per_second = static_cast<double>(bytes) / std::max(Seconds(time), 1e-9);
  return static_cast<uint64_t>(std::clamp(
      per_second * kBulkSeconds, static_cast<double>(kLeastBulk), static_cast<double>(kMostBulk)));
}

bool FarBelowProbe(const LinkProbe& probe, double gigabytes_per_second, uint64_t bytes_since) {
  return probe.gigabytes_per_second > 0 && bytes_since >= kBytesForAlarm &&
         gigabytes_per_second < probe.gigabytes_per_second / 2;
}

}  // namespace tandem
