#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <optional>

#include "base/clock.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// When a request was last seen to have passed the whole of a route: a unified worker sent its
// tokens, or a decode worker continued what a prefill worker had computed. Thread-safe.
class RouteProofs {
 public:
  void Passed(v1::Route route, TimePoint now) {
    Of(route).store(now.time_since_epoch().count(), std::memory_order_relaxed);
  }
  // When a request last passed the route; nothing where none has passed yet.
  std::optional<TimePoint> latest(v1::Route route) const {
    const TimePoint::rep at = Of(route).load(std::memory_order_relaxed);
    if (at == 0) return std::nullopt;
    return TimePoint(Duration(at));
  }

 private:
  using At = std::atomic<TimePoint::rep>;
  At& Of(v1::Route route) { return at_[static_cast<size_t>(route)]; }
  const At& Of(v1::Route route) const { return at_[static_cast<size_t>(route)]; }

  std::array<At, v1::Route_ARRAYSIZE> at_ = {};
};

}  // namespace tandem
