#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "transfer/framed/link_meter.h"
#include "transfer/transport.h"

namespace tandem {

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
  // So much of what was counted as sent was not sent after all.
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

  std::shared_ptr<Link> Find(std::string_view peer);  // made when the peer is new
  std::vector<LinkStats> stats() const;

 private:
  const std::string transport_;
  mutable absl::Mutex mutex_;
  std::vector<std::shared_ptr<Link>> links_ ABSL_GUARDED_BY(mutex_);  // the oldest first
};

}  // namespace tandem
