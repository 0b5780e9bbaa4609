#pragma once

#include <cstdint>

namespace tandem {

// Whether a link is far slower than it once was, even at its fastest of late: on below a quarter of
// its best probe, off again from half of it on, so that a rate between the two changes nothing. A
// quarter, since threads that share their cores with a prefill move half of what a probe of an idle
// machine found.
// Pure. Thread: one at a time.
class LinkAlarm {
 public:
  static constexpr double kOnBelow = 0.25;
  static constexpr double kOffFrom = 0.5;

  // `best`: the highest rate that a probe found; `fastest`: LinkMeter's, of late. Nothing follows
  // from one that is 0: it was not measured. Whether the alarm went on or off.
  bool Update(double best, double fastest) {
    if (best <= 0 || fastest <= 0) return false;
    const bool before = on_;
    on_ = fastest < best * (before ? kOffFrom : kOnBelow);
    if (on_ && !before) ++times_;
    return on_ != before;
  }

  bool on() const { return on_; }
  uint64_t times() const { return times_; }  // that it went on

 private:
  bool on_ = false;
  uint64_t times_ = 0;
};

}  // namespace tandem
