#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace tandem {

// Chooses which of the links to one peer the next stream takes. That is the link with the highest
// measured rate. A link that was never measured still comes before it when the worker prefers its
// transport, because its probe has usually failed for a reason that passes. A link that has just
// failed is taken only when every other link is down as well.
//
//   up    --Failed--> down (for a back-off that doubles with every failure)
//         --Damaged--> down (for the longest back-off)
//   down  --back-off over, next Choose--> trial (this one stream; the others take another link)
//   trial --Worked--> up
//         --Failed, Damaged--> down
//         --GaveUp--> down, with its back-off over
//
// Pure: the class does no I/O and the caller says what time it is. Thread: one at a time.
class LinkSelector {
 public:
  static constexpr Duration kFirstBackOff = std::chrono::milliseconds(500);
  static constexpr Duration kLongestBackOff = std::chrono::seconds(30);

  // `transports` holds the names of the links' transports, the preferred one first, and is not
  // empty.
  explicit LinkSelector(const std::vector<std::string>& transports);

  // One use of one link. `life` is the number of failures that the link had before: it tells a late
  // result of a stream that was open before the latest failure from a result of the link as it is
  // now.
  struct Use {
    size_t link = 0;
    uint64_t life = 0;
  };
  struct Fallback {
    std::string from;
    std::string to;
    std::string reason;  // why `from` is down
  };
  struct Choice {
    Use use;
    std::optional<Fallback> fallback;  // set by the first choice that leaves a better link
  };
  Choice Choose(TimePoint now);

  // Reports that the stream or probe which used the link succeeded.
  void Worked(Use use);
  // Reports that the stream or probe which used the link failed because the connection did. Streams
  // that were open together and fail together count as one failure.
  void Failed(Use use, TimePoint now, const std::string& reason);
  // Reports that the link delivered other bytes than were sent. The link stays down for the longest
  // back-off, because every further attempt costs a whole stream.
  void Damaged(Use use, TimePoint now, const std::string& reason);
  // Reports that the stream or probe which used the link ended for a reason that says nothing about
  // the link.
  void GaveUp(Use use);

  // The use of a link by a probe, which names its link instead of calling Choose.
  Use UseOf(size_t link) const { return {.link = link, .life = links_[link].life}; }
  void SetRate(size_t link, double gigabytes_per_second);

  std::optional<size_t> in_use() const { return in_use_; }  // the link of the latest choice
  uint64_t fallbacks() const { return fallbacks_; }
  const std::string& fallback_reason() const { return fallback_reason_; }  // of the latest fallback

 private:
  enum class State : uint8_t { kUp, kDown, kTrial };
  struct Link {
    std::string transport;
    double rate = 0;  // 0 until a probe has measured it
    State state = State::kUp;
    uint64_t life = 0;  // failures so far
    Duration back_off = kFirstBackOff;
    TimePoint down_until{};
    std::string reason;
  };

  std::vector<size_t> BestFirst() const;
  size_t Pick(const std::vector<size_t>& best_first, TimePoint now) const;

  std::vector<Link> links_;
  std::optional<size_t> in_use_;
  bool fell_back_ = false;  // the latest choice passed over a better link that is down
  uint64_t fallbacks_ = 0;
  std::string fallback_reason_;
};

}  // namespace tandem
