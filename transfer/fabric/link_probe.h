#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "transfer/link_stats.h"

namespace tandem {

// The number of a probe stream has three parts: this bit, which no reservation has set; 31 random
// bits of the worker that probes; and a count of that worker's probe streams.
inline constexpr uint64_t kProbeStreamBit = uint64_t{1} << 63;
inline constexpr int kProbeCountBits = 32;
// The part that all probe streams of one worker share.
constexpr uint64_t ProberOf(uint64_t stream) { return stream >> kProbeCountBits; }

// The largest payload of a probe frame. A worker whose KV extents are larger probes with this size.
inline constexpr uint32_t kMaxProbePayload = 256u << 10;

// A probe measures the time of streams from their opening to their acknowledgement, and repeats
// each measurement except the first.
inline constexpr int kProbeRepeats = 3;
inline constexpr int kProbeSmallFrames = 65;  // 64 more than one
inline constexpr uint32_t kProbeSmallPayload = 64;

struct ProbeTimings {
  Duration first{};                  // a stream without frames, the connection setup included
  std::vector<Duration> empty;       // a stream without frames on the existing connection
  std::vector<Duration> one_small;   // a stream of one frame of kProbeSmallPayload
  std::vector<Duration> many_small;  // a stream of kProbeSmallFrames such frames
  std::vector<Duration> bulk;
  uint64_t bulk_bytes = 0;  // payload bytes of each bulk stream
};

struct LinkProbe {
  double gigabytes_per_second = 0;
  std::optional<Duration> setup;  // empty when the connection existed before the probe
  Duration round_trip{};          // a stream without frames on the existing connection
  Duration operation{};           // what each further small frame costs
};

// `times` must not be empty.
Duration Median(std::vector<Duration> times);

// Takes the median of each measurement. The rate says what further bytes cost: the time of an empty
// stream is subtracted. The time of the frames is not, because KV comes in frames too.
LinkProbe Evaluate(const ProbeTimings& timings);

// The size of a bulk that takes about a tenth of a second, within [kLeastBulkBytes,
// kMostBulkBytes]. `bytes` took `time` more than an empty stream.
inline constexpr uint64_t kLeastBulkBytes = 16 << 10;
inline constexpr uint64_t kMostBulkBytes = 16 << 20;
uint64_t BulkBytes(uint64_t bytes, Duration time);

// Trials find the size of the bulk. Each is kTrialGrowth times larger than the one before, up to
// kLargestTrialBytes; the first takes LinkProber's whole patience on a link of 4 kB/s. A trial that
// takes longer than kLongTrial is the last, because the next could exceed that patience.
inline constexpr uint64_t kLargestTrialBytes = 1 << 20;
inline constexpr int kTrialGrowth = 8;
inline constexpr Duration kLongTrial = std::chrono::milliseconds(250);

// The payload size of a bulk's frames: `extent_bytes`, or less so that a small bulk still has
// several frames.
uint32_t BulkPayloadBytes(uint64_t bulk_bytes, uint32_t extent_bytes);

}  // namespace tandem
