#pragma once

#include <string_view>

namespace tandem {

// At most `target_us`; up to `fail_above_us` it is not yet failed.
struct TimeLimits {
  double target_us = 0;
  double fail_above_us = 0;
};

// "met", "near" or "missed"; a time that is no number is missed.
inline std::string_view Verdict(double us, const TimeLimits& limits) {
  if (us <= limits.target_us) return "met";
  return us <= limits.fail_above_us ? "near" : "missed";
}

}  // namespace tandem
