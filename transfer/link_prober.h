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
#include "kernels/device.h"
#include "transfer/link_probe.h"
#include "transfer/transport.h"

namespace tandem {

// Measures the way to a peer with streams that its ProbeReceiver takes, one after the other: at
// most 52 MB of payload per link. Payloads come from memory that was set aside before, where KV
// lies and large enough that most of it is not in a core's own cache, as KV is not. Thread: Measure
// from one, which it blocks; Stop from any.
class LinkProber {
 public:
  static constexpr size_t kMemoryBytes = 4 << 20;

  // `extent_bytes`: of the frames of the bulk, as of KV, unless the link is so slow that the bulk
  // is small; larger ones count as kMaxProbePayload. `memory`: kMemoryBytes.
  LinkProber(size_t extent_bytes, DeviceBuffer memory, const Clock& clock);

  // UNAVAILABLE when the peer cannot be reached, DEADLINE_EXCEEDED when a stream takes longer than
  // kPatience, CANCELLED after Stop, else what the peer answered.
  absl::StatusOr<LinkProbe> Measure(Transport& transport, std::string_view address, uint64_t epoch);
  // Ends the measuring in progress, and all later ones, at once.
  void Stop();

  size_t buffer_bytes() const { return memory_.size(); }
  // Frames of probes that were sent, headers included.
  uint64_t bytes_sent() const { return bytes_sent_; }

  static constexpr Duration kPatience = std::chrono::seconds(5);

 private:
  struct Load {
    int frames = 0;
    uint32_t payload_bytes = 0;
  };
  // Where streams go, and what to call them.
  struct Target {
    Transport& transport;
    std::string_view address;
    uint64_t epoch = 0;
  };
  // How the stream in progress ended.
  struct End {
    uint64_t stream = 0;
    TimePoint when;
    absl::Status status;
  };

  void OnEnded(uint64_t stream, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // From opening to acknowledgement.
  absl::StatusOr<Duration> Send(const Target& target, Load load);
  absl::Status Post(const Target& target, uint64_t stream, Load load);
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
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t awaited_ ABSL_GUARDED_BY(mutex_) = 0;  // stream; the end of an aborted one may be late
  End ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
