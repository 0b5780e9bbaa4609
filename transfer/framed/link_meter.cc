#include "transfer/framed/link_meter.h"

#include <algorithm>
#include <utility>

namespace tandem {

void LinkMeter::Span::Add(const Span& other) {
  bytes += other.bytes;
  time += other.time;
}

double LinkMeter::Span::bytes_per_second() const {
  return static_cast<double>(bytes) /
         std::chrono::duration<double>(std::max(time, Duration(1))).count();
}

void LinkMeter::Arrived(TimePoint now, uint64_t bytes, uint64_t left) {
  const bool together = now - since_ < kTogether;
  if (!together) CloseWhatIsOver();
  // If more arrived than was on its way at the previous answer, the link may have been idle between
  // the two.
  head_ = bytes > left_ || (head_ && together);
  if (!head_) {
    const Span span = {.bytes = bytes, .time = now - since_};
    part_.Add(span);
    window_.Add(span);
  }
  since_ = now;
  left_ = left;
}

void LinkMeter::CloseWhatIsOver() {
  if (part_.IsOver(kPartBytes)) {
    fastest_part_ = std::max(fastest_part_, std::exchange(part_, {}).bytes_per_second());
  }
  if (!window_.IsOver(kWindowBytes)) return;
  const double rate = std::exchange(window_, {}).bytes_per_second();
  part_ = {};
  // A window of few bytes has no finished part.
  fastest_.push_back(std::max(rate, std::exchange(fastest_part_, 0)));
  // While there are few windows, all have the same weight.
  const auto windows = static_cast<double>(fastest_.size());
  mean_ += (rate - mean_) * std::max(kWeight, 1.0 / windows);
  if (fastest_.size() > kWindowsOfFastest) fastest_.pop_front();
}

double LinkMeter::fastest_bytes_per_second() const {
  return fastest_.size() < kWindowsOfFastest ? 0 : *std::ranges::max_element(fastest_);
}

}  // namespace tandem
