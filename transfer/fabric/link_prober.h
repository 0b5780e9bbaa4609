#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/condition_variable.h"
#include "kernels/device.h"
#include "transfer/transport.h"

namespace tandem {

// The number of a probe stream has three parts: kProbeStreamBit, which no reservation has set; 31
// random bits of the worker that probes; and a count of that worker's probe streams.
inline constexpr uint64_t kProbeStreamBit = uint64_t{1} << 63;
inline constexpr int kProbeCountBits = 32;
// The part of a probe stream's number that all probe streams of one worker share.
constexpr uint64_t ProberOf(uint64_t stream) { return stream >> kProbeCountBits; }

// The largest payload of a probe frame. A worker whose KV extents are larger probes with this size.
inline constexpr uint32_t kMaxProbePayload = 256u << 10;

// A probe measures the time of streams from their opening to their acknowledgement. This is how
// often it makes each measurement, except the first, which it makes once.
inline constexpr int kProbeRepeats = 3;
inline constexpr int kProbeSmallFrames = 65;  // 64 more than the stream of one frame has
inline constexpr uint32_t kProbeSmallPayload = 64;

struct ProbeTimings {
  Duration first{};                  // a stream without frames, the connection setup included
  std::vector<Duration> empty;       // a stream without frames on the existing connection
  std::vector<Duration> one_small;   // a stream of one frame of kProbeSmallPayload
  std::vector<Duration> many_small;  // a stream of kProbeSmallFrames small frames
  std::vector<Duration> bulk;
  uint64_t bulk_bytes = 0;  // payload bytes of each bulk stream
};

struct LinkProbe {
  double gigabytes_per_second = 0;
  std::optional<Duration> setup;  // empty when the connection existed before the probe
  Duration round_trip{};          // a stream without frames on the existing connection
  Duration operation{};           // the time that each further small frame takes
};

// The median of `times`, which must not be empty.
Duration Median(std::vector<Duration> times);

// Computes the result of a probe from the median of each measurement. The rate is that of further
// bytes: the time of an empty stream is subtracted. The time of the frames is not, because KV comes
// in frames too.
LinkProbe Evaluate(const ProbeTimings& timings);

// The size of a bulk stream that will take about a tenth of a second, within [kLeastBulkBytes,
// kMostBulkBytes], given that `bytes` took `time` more than an empty stream.
inline constexpr uint64_t kLeastBulkBytes = 16 << 10;
inline constexpr uint64_t kMostBulkBytes = 16 << 20;
uint64_t BulkBytes(uint64_t bytes, Duration time);

// A probe finds the size of its bulk stream by trial streams. Each is kTrialGrowth times larger
// than the one before. A trial that takes longer than kLongTrial is the last, because the next
// could exceed LinkProber's patience.
inline constexpr uint64_t kLargestTrialBytes = 1 << 20;
inline constexpr int kTrialGrowth = 8;
inline constexpr Duration kLongTrial = std::chrono::milliseconds(250);

// The payload size of the frames of a bulk stream: `extent_bytes`, or less so that a small bulk
// stream still has several frames.
uint32_t BulkPayloadBytes(uint64_t bulk_bytes, uint32_t extent_bytes);

// Allocates the memory that probes are sent from or land in. It belongs to the device that holds
// KV, so that a probe travels as KV does; a null device means the host's memory. With `shared`
// other processes can open it. Its bytes are not all the same. Errors as Device::Allocate and
// Stream::Copy.
absl::StatusOr<DeviceBuffer> AllocateProbeMemory(Device* device, size_t size, bool shared);

// Measures the link to a peer with streams that the peer's ProbeReceiver takes, one after the other
// and with at most 52 MB of payload. As with KV, most of the memory that this payload comes from is
// not in a core's own cache.
// Thread: one thread at a time calls Measure, which blocks it; any may call Stop.
class LinkProber {
 public:
  static constexpr size_t kMemoryBytes = 4 << 20;

  // The frames of bulk streams are as large as KV extents, `extent_bytes`, but at most
  // kMaxProbePayload, and smaller on a link so slow that the bulk stream is small. `memory` has
  // kMemoryBytes.
  LinkProber(size_t extent_bytes, DeviceBuffer memory, const Clock& clock);

  // Probes the link to `address`. UNAVAILABLE when the peer cannot be reached, DEADLINE_EXCEEDED
  // when a stream takes longer than kPatience, RESOURCE_EXHAUSTED while another worker probes the
  // peer, CANCELLED after Stop, and otherwise what the peer answered.
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
  // Sends one stream. Returns the time from its opening to its acknowledgement.
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
  uint64_t awaited_ ABSL_GUARDED_BY(mutex_) = 0;  // the stream whose end is awaited
  End ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
