#pragma once

#include <cstdint>

#include "base/clock.h"

namespace tandem {

// The rate of a link while it is used: payload over the time in which some of it was under way,
// both fading with the bytes that follow, so that the latest 64 MB or so count.
// Pure: the caller says what time it is.
class LinkMeter {
 public:
  static constexpr double kWindowBytes = 64e6;

  // Something is under way from now on; without effect when something was already.
  void Began(TimePoint now);
  // `bytes` have arrived. `idle`: nothing is under way any more.
  void Arrived(TimePoint now, uint64_t bytes, bool idle);
  // What was under way was lost: that time says nothing of the link.
  void Lost() { busy_ = false; }

  // 0 before anything arrived.
  double bytes_per_second() const { return seconds_ > 0 ? bytes_ / seconds_ : 0; }

 private:
  bool busy_ = false;
  TimePoint since_{};  // of busy time that is not counted yet
  double bytes_ = 0;
  double seconds_ = 0;
};

}  // namespace tandem
