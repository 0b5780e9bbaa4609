#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace tandem {

// Which of the ways to one peer the next stream takes: the one that was measured fastest, but for
// those before it that were never measured, which are better by nature; never one that has just
// failed, as long as another is there.
//
//   up    --Failed--> down (for a back-off that doubles with every failure)
//         --Damaged--> down (for the longest back-off)
//   down  --its back-off is over: the next Choose--> trial (one stream; the others go elsewhere)
//   trial --Worked--> up      --Failed, Damaged--> down      --GaveUp--> down, its back-off over
//
// Pure: no transport, no clock of its own. Thread: one at a time.
class PeerPaths {
 public:
  static constexpr Duration kFirstBackOff = std::chrono::milliseconds(500);
  static constexpr Duration kLongestBackOff = std::chrono::seconds(30);

  // `transports`: their names, best first by nature; at least one.
  explicit PeerPaths(const std::vector<std::string>& transports);

  // Names one use of one path, so that what became of it is put down to the right time.
  struct Use {
    size_t path = 0;
    uint64_t life = 0;
  };
  struct Fallback {
    std::string from;
    std::string to;
    std::string reason;  // why `from` is down
  };
  struct Choice {
    Use use;
    std::optional<Fallback> fallback;  // when this is where a better path was given up
  };
  Choice Choose(TimePoint now);

  // How a stream that took `use` ended. Many that fail together are one failure.
  void Worked(Use use);
  void Failed(Use use, TimePoint now, const std::string& reason);
  // Likewise of one that delivers what is not what was sent: each further try costs a stream.
  void Damaged(Use use, TimePoint now, const std::string& reason);
  void GaveUp(Use use);  // for reasons of its own: says nothing of the path

  // One that does not count as a choice: a probe's.
  Use UseOf(size_t path) const { return {.path = path, .life = paths_[path].life}; }
  // As measured by a probe.
  void SetRate(size_t path, double gigabytes_per_second);

  // Of the latest choice.
  std::optional<size_t> in_use() const { return in_use_; }
  uint64_t fallbacks() const { return fallbacks_; }
  const std::string& fallback_reason() const { return fallback_reason_; }  // of the latest

 private:
  enum class State : uint8_t { kUp, kDown, kTrial };
  struct Path {
    std::string transport;
    double rate = 0;  // 0: not measured
    State state = State::kUp;
    uint64_t life = 0;  // failures so far
    Duration back_off = kFirstBackOff;
    TimePoint down_until{};
    std::string reason;
  };

  std::optional<size_t> Fastest() const;
  std::vector<size_t> BestFirst() const;
  size_t Pick(const std::vector<size_t>& best_first, TimePoint now) const;

  std::vector<Path> paths_;
  std::optional<size_t> in_use_;
  bool fell_back_ = false;  // the latest choice went past a better path that is down
  uint64_t fallbacks_ = 0;
  std::string fallback_reason_;
};

}  // namespace tandem
