#include "engine/handoff/overruns.h"

#include <algorithm>

namespace tandem {
namespace {

// How fast earlier transfers are forgotten: the share of their weight that remains after each later
// transfer, if that was encoded in the same way or in another way.
constexpr double kKeptBySame = 0.75;
constexpr double kKeptByOther = 0.98;
// The weight of the assumption that there is no overrun: it counts as much as this many bytes that
// were transferred in the predicted time.
constexpr double kTrustedBytes = 8e6;

}  // namespace

double Overruns::SecondsPerByte(size_t way) const {
  if (way >= ways_.size()) return 0;
  return ways_[way].seconds / (ways_[way].bytes + kTrustedBytes);
}

void Overruns::Add(size_t way, int64_t bytes, double seconds) {
  if (way >= ways_.size()) ways_.resize(way + 1);
  for (size_t i = 0; i < ways_.size(); ++i) {
    const double kept = i == way ? kKeptBySame : kKeptByOther;
    ways_[i].seconds *= kept;
    ways_[i].bytes *= kept;
  }
  ways_[way].seconds += std::max(seconds, 0.0);
  ways_[way].bytes += static_cast<double>(bytes);
}

}  // namespace tandem
