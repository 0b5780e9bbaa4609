#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "transfer/transport.h"

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
  static constexpr double kWeight = 0.25;  // the weight of the latest window
  // The number of windows that have to go by before a link is known never to be fast.
  static constexpr size_t kWindowsOfFastest = 8;
  // Answers that are no further apart than this waited together to be read, so they count as one.
  static constexpr Duration kTogether = std::chrono::microseconds(20);

  // An answer of the peer says that `bytes` more bytes have arrived; `left` are under way or wait
  // to be sent.
  void Arrived(TimePoint now, uint64_t bytes, uint64_t left);
  // What was under way was lost or taken back, so the time since then says nothing about the link.
  void Interrupted() { left_ = 0; }

  // The mean rate; 0 until the first window is over.
  double bytes_per_second() const { return mean_; }
  // The rate of the fastest part of the latest kWindowsOfFastest windows; 0 until that many windows
  // are over.
  double fastest_bytes_per_second() const;

 private:
  // Some bytes and the time that they took.
  struct Span {
    uint64_t bytes = 0;
    Duration time{};

    void Add(const Span& other) {
      bytes += other.bytes;
      time += other.time;
    }
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
  std::deque<double> fastest_;  // the rate of the fastest part of each latest window
  double mean_ = 0;
};

// The statistics of the link to one peer. They outlive the connections to it.
// Thread-safe.
class Link {
 public:
  Link(std::string_view peer, std::string_view transport)
      : peer_(peer), stats_{.peer = peer_, .transport = std::string(transport)} {}

  const std::string& peer() const { return peer_; }
  // Adds to one of the counters of LinkStats.
  void Count(uint64_t LinkStats::*counter, uint64_t times = 1);
  void Sent(uint64_t payload_bytes);
  // Takes back `payload_bytes` that Sent counted but that were not sent after all.
  void TakenBack(uint64_t payload_bytes);
  // The peer has consumed `payload_bytes` more, and `left_bytes` are under way or wait to be sent.
  void Consumed(TimePoint now, uint64_t payload_bytes, uint64_t left_bytes);
  // The connection is gone, and with it what was under way.
  void Lost();

  LinkStats stats() const;

 private:
  const std::string peer_;
  mutable absl::Mutex mutex_;
  LinkStats stats_ ABSL_GUARDED_BY(mutex_);
  LinkMeter meter_ ABSL_GUARDED_BY(mutex_);
};

// The links of one transport: those of the latest kCapacity peers, and all that are in use.
// Thread-safe.
class Links {
 public:
  static constexpr size_t kCapacity = 256;

  explicit Links(std::string_view transport) : transport_(transport) {}

  std::shared_ptr<Link> Find(std::string_view peer);  // makes a link for a new peer
  std::vector<LinkStats> stats() const;

 private:
  const std::string transport_;
  mutable absl::Mutex mutex_;
  std::vector<std::shared_ptr<Link>> links_ ABSL_GUARDED_BY(mutex_);  // the oldest first
};

}  // namespace tandem
