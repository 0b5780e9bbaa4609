#include "scheduler/latency_model/link_model.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"

namespace tandem {
namespace {

// The total throughput of `streams` concurrent streams, as a multiple of that of one stream; linear
// between the measured counts and constant beyond them.
double TotalOf(const std::vector<LinkModel::Contention>& measured, int32_t streams) {
  LinkModel::Contention before{};
  for (const LinkModel::Contention& point : measured) {
    if (point.streams >= streams) {
      if (point.streams == before.streams) return point.total;
      const double share = static_cast<double>(streams - before.streams) /
                           static_cast<double>(point.streams - before.streams);
      return before.total + share * (point.total - before.total);
    }
    before = point;
  }
  return before.total;
}

bool IsCost(double value) { return std::isfinite(value) && value >= 0; }

}  // namespace

absl::Status LinkModel::Validate() const {
  if (!IsCost(setup.count()) || !IsCost(operation.count())) {
    return InvalidArgument("a link has setup {} ms and operation {} ms: neither may be negative",
                           setup.count(), operation.count());
  }
  if (!std::isfinite(bytes_per_second) || bytes_per_second <= 0) {
    return InvalidArgument("a link has a bandwidth of {} bytes/s: it must be above 0",
                           bytes_per_second);
  }
  Contention before{};
  for (const Contention& point : contention) {
    if (point.streams <= before.streams) {
      return InvalidArgument("a link's contention has {} streams after {}: counts must rise from 2",
                             point.streams, before.streams);
    }
    if (!std::isfinite(point.total) || point.total <= 0 ||
        point.total / point.streams > before.total / before.streams) {
      return InvalidArgument(
          "a link's contention at {} streams is {}: it must be above 0, and a stream's share must "
          "not rise with their number",
          point.streams, point.total);
    }
    before = point;
  }
  return absl::OkStatus();
}

double LinkModel::Share(int32_t streams) const {
  const int32_t all = std::max(streams, 1);
  return bytes_per_second * TotalOf(contention, all) / all;
}

ModelTime LinkModel::Transfer(int64_t bytes, int64_t operations, int32_t streams) const {
  if (bytes <= 0) return ModelTime::zero();
  return setup + operation * static_cast<double>(operations) +
         ModelTime(static_cast<double>(bytes) / Share(streams) * 1e3);
}

ModelTime ExposedTransfer(ModelTime transfer, ModelTime prefill, int32_t units) {
  const double parts = std::max(units, 1);
  return std::max(transfer / parts, transfer - prefill * (1.0 - 1.0 / parts));
}

}  // namespace tandem
