#include "transfer/link_meter.h"

#include <cmath>

namespace tandem {

void LinkMeter::Began(TimePoint now) {
  if (busy_) return;
  busy_ = true;
  since_ = now;
}

void LinkMeter::Arrived(TimePoint now, uint64_t bytes, bool idle) {
  if (!busy_) return;
  const auto count = static_cast<double>(bytes);
  const double keep = std::exp(-count / kWindowBytes);
  bytes_ = keep * bytes_ + count;
  seconds_ = keep * seconds_ + std::chrono::duration<double>(now - since_).count();
  since_ = now;
  busy_ = !idle;
}

}  // namespace tandem
