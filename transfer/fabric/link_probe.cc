#include "transfer/fabric/link_probe.h"

#include <algorithm>

#include "base/check.h"

namespace tandem {
namespace {

constexpr double kBulkSeconds = 0.1;
constexpr uint64_t kLeastFrames = 16;

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

Duration Median(std::vector<Duration> times) {
  TANDEM_CHECK(!times.empty(), "a probe repeats each timing");
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

LinkProbe Evaluate(const ProbeTimings& timings) {
  const Duration bulk = Median(timings.bulk);
  // A bulk that takes hardly longer than an empty stream measures the clock and the scheduler, not
  // the link; half of its time bounds the rate.
  const Duration moving = std::max({bulk - Median(timings.empty), bulk / 2, Duration(1)});
  const Duration frames = Median(timings.many_small) - Median(timings.one_small);
  return {.gigabytes_per_second = static_cast<double>(timings.bulk_bytes) / 1e9 / Seconds(moving),
          .setup = timings.first,
          .round_trip = Median(timings.empty),
          .operation = std::max(Duration(0), frames / (kProbeSmallFrames - 1))};
}

uint64_t BulkBytes(uint64_t bytes, Duration time) {
  const double per_second = static_cast<double>(bytes) / std::max(Seconds(time), 1e-9);
  return static_cast<uint64_t>(std::clamp(per_second * kBulkSeconds,
                                          static_cast<double>(kLeastBulkBytes),
                                          static_cast<double>(kMostBulkBytes)));
}

uint32_t BulkPayloadBytes(uint64_t bulk_bytes, uint32_t extent_bytes) {
  return static_cast<uint32_t>(std::min<uint64_t>(extent_bytes, bulk_bytes / kLeastFrames));
}

}  // namespace tandem
