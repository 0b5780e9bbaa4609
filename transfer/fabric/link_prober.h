#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/condition_variable.h"
#include "kernels/device.h"
#include "transfer/fabric/link_probe.h"
#include "transfer/transport.h"

namespace tandem {

// Measures the link to a peer with streams that the peer's ProbeReceiver takes, one after the other
// and with at most 52 MB of payload. The payloads come from memory that was set aside in advance.
// It is of the kind that holds KV, and large enough that most of it is not in a core's own cache,
// just as KV is not. Thread: one thread at a time calls Measure, which blocks it; any may call Stop.
class LinkProber {
 public:
  static constexpr size_t kMemoryBytes = 4 << 20;

  // Bulk frames are as large as KV extents, `extent_bytes`, but at most kMaxProbePayload, and
  // smaller on a link so slow that the bulk is small. `memory` has kMemoryBytes.
  LinkProber(size_t extent_bytes, DeviceBuffer memory, const Clock& clock);

  // UNAVAILABLE when the peer cannot be reached, DEADLINE_EXCEEDED when a stream takes longer than
  // kPatience, RESOURCE_EXHAUSTED while another worker probes the peer, CANCELLED after Stop, and
  // otherwise what the peer answered.
  absl::StatusOr<LinkProbe> Measure(Transport& transport, std::string_view address, uint64_t epoch);
  // Ends the measurement in progress at once, and every later one.
  void Stop();

  size_t buffer_bytes() const { return memory_.size(); }
  // Bytes of the probe frames that were sent, headers included.
  uint64_t bytes_sent() const { return bytes_sent_; }

  static constexpr Duration kPatience = std::chrono::seconds(5);

 private:
  struct Load {
    int frames = 0;
    uint32_t payload_bytes = 0;
  };
  struct Target {
    Transport& transport;
    std::string_view address;
    uint64_t epoch = 0;
  };
  struct End {
    uint64_t stream = 0;
    TimePoint when;
    absl::Status status;
  };

  void OnEnded(uint64_t stream, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // The time from opening a stream to its acknowledgement.
  absl::StatusOr<Duration> Send(const Target& target, Load load);
  absl::Status Post(SendStream& stream, Load load);
  absl::StatusOr<End> AwaitEnd(uint64_t stream) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Repeat(const Target& target, Load load, std::vector<Duration>& times);
  Load BulkOf(uint64_t bytes) const;
  absl::StatusOr<Load> ChooseBulk(const Target& target, Duration empty);

  const uint32_t extent_bytes_;
  const Clock& clock_;
  const DeviceBuffer memory_;
  uint64_t next_stream_;
  std::atomic<uint64_t> bytes_sent_ = 0;
  absl::Mutex mutex_;
  MonotonicCondVar ended_or_stopped_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t awaited_ ABSL_GUARDED_BY(mutex_) = 0;  // stream; an aborted one may end late
  End ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
