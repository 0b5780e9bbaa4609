#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "base/clock.h"

namespace tandem {

// The rate of a link while it is full, as its sender sees it: what a probe measures, too.
//
// KV comes in bursts, one for each layer of a chunk, and most of the time of a small burst is a
// round trip and the wait of threads for a core, of which a probe says nothing. So bytes count only
// where all of them were on their way before the answer that the time is taken from: the peer says
// again and again how far it is, and between two such answers the link had something to do. A burst
// that is answered at once says nothing. What comes over a slow network is answered often, so it
// shows in small bursts.
//
// Rates are taken over windows of 4 MB, or of half a second where that is less, and their mean
// fades with the windows: one in which a process stood still spoils a quarter of it, however long
// it was. Threads that wait for a core slow a link down as much as anything, but not all of the
// time: the fastest quarter of the latest windows tells what the link itself can do. Pure: the
// caller says what time it is.
class LinkMeter {
 public:
  static constexpr uint64_t kWindowBytes = 4'000'000;
  static constexpr uint64_t kPartBytes = kWindowBytes / 4;
  static constexpr Duration kWindowTime = std::chrono::milliseconds(500);
  static constexpr double kWeight = 0.25;  // of the latest window
  // So many have to go by to be sure that a link is never fast.
  static constexpr size_t kWindowsOfFastest = 8;
  // Answers so close upon one another waited together to be read: they are one.
  static constexpr Duration kTogether = std::chrono::microseconds(20);

  // An answer: `bytes` more have arrived, `left` are under way or wait to be sent.
  void Arrived(TimePoint now, uint64_t bytes, uint64_t left);
  // What was under way was lost or taken back: that time says nothing of the link.
  void Interrupted() { left_ = 0; }

  // 0 before the first window is over.
  double bytes_per_second() const { return mean_; }
  // Of the fastest part of the latest kWindowsOfFastest; 0 before there are so many.
  double fastest_bytes_per_second() const;

 private:
  // Bytes and the time that they took.
  struct Span {
    uint64_t bytes = 0;
    Duration time{};

    void Add(const Span& other);
    bool IsOver(uint64_t most_bytes) const { return bytes >= most_bytes || time >= kWindowTime; }
    double bytes_per_second() const;
  };

  void CloseWhatIsOver();

  uint64_t left_ = 0;  // at the latest answer
  TimePoint since_{};  // of the latest answer
  bool head_ = false;  // whether that was the first one of a burst
  Span window_;
  Span part_;                   // of it
  double fastest_part_ = 0;     // of it
  std::deque<double> fastest_;  // of the latest kWindowsOfFastest
  double mean_ = 0;
};

}  // namespace tandem
