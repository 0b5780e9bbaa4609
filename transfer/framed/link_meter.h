#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "base/clock.h"

namespace tandem {

// The rate of a link while it is full, as its sender sees it. This is also what a probe measures.
//
// KV comes in bursts, and most of the time of a small burst is a round trip and the wait of threads for
// a core. So bytes count only if all of them were on their way before the answer from which the time
// is taken: between two answers of the peer the link had something to do. A burst with a single answer
// says nothing.
//
// Rates are taken over windows and averaged with exponentially falling weights. Threads that wait for
// a core slow a link down as much as anything, but not all of the time, so the fastest part of the
// latest windows tells what the link itself can do. docs/links.md says more.
// Pure: the caller passes the time.
class LinkMeter {
 public:
  static constexpr uint64_t kWindowBytes = 4'000'000;
  static constexpr uint64_t kPartBytes = kWindowBytes / 4;
  static constexpr Duration kWindowTime = std::chrono::milliseconds(500);
  static constexpr double kWeight = 0.25;  // of the latest window
  // So many windows have to go by before a link is known never to be fast.
  static constexpr size_t kWindowsOfFastest = 8;
  // Answers that are so close together waited together to be read, so they count as one.
  static constexpr Duration kTogether = std::chrono::microseconds(20);

  // An answer says that `bytes` more have arrived; `left` are under way or wait to be sent.
  void Arrived(TimePoint now, uint64_t bytes, uint64_t left);
  // What was under way was lost or taken back, so the time since then says nothing about the link.
  void Interrupted() { left_ = 0; }

  // 0 until the first window is over.
  double bytes_per_second() const { return mean_; }
  // The rate of the fastest part of the latest kWindowsOfFastest windows; 0 until there are so many.
  double fastest_bytes_per_second() const;

 private:
  // Some bytes and the time that they took.
  struct Span {
    uint64_t bytes = 0;
    Duration time{};

    void Add(const Span& other);
    bool IsOver(uint64_t most_bytes) const { return bytes >= most_bytes || time >= kWindowTime; }
    double bytes_per_second() const;
  };

  void CloseWhatIsOver();

  uint64_t left_ = 0;  // bytes that were left at the latest answer
  TimePoint since_{};  // when the latest answer came
  bool head_ = false;  // whether the latest answer was the first of a burst
  Span window_;
  Span part_;                   // the current part of the window
  double fastest_part_ = 0;     // the rate of the fastest part of the window
  std::deque<double> fastest_;  // the same of the latest kWindowsOfFastest windows
  double mean_ = 0;
};

}  // namespace tandem
