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

// Streams of probes have this bit set; no reservation has.
inline constexpr uint64_t kProbeStreamBit = uint64_t{1} << 63;
// No frame of a probe is larger: extents that are, are probed with this.
inline constexpr uint32_t kMaxProbePayload = 256u << 10;

// What a probe of a link consists of: each timing spans from opening a stream to its
// acknowledgement, and all but the first are repeated.
inline constexpr int kProbeRepeats = 3;
inline constexpr int kProbeSmallFrames = 65;  // 64 more than one
inline constexpr uint32_t kProbeSmallPayload = 64;

struct ProbeTimings {
  Duration first{};                  // a stream without frames, the connection included
  std::vector<Duration> empty;       // ... again, on the connection that is there
  std::vector<Duration> one_small;   // a stream of one frame of kProbeSmallPayload
  std::vector<Duration> many_small;  // of kProbeSmallFrames
  std::vector<Duration> bulk;
  uint64_t bulk_bytes = 0;  // of payload, each time
};

struct LinkProbe {
  double gigabytes_per_second = 0;
  std::optional<Duration> setup;  // empty where the connection was there before
  Duration operation{};
};

// Of at least one.
Duration Median(std::vector<Duration> times);

// Takes the median of each timing. The rate is what further bytes cost: the time of an empty stream
// is taken off, that of the frames is not, since KV comes in frames too.
LinkProbe Evaluate(const ProbeTimings& timings);

// How many bytes the bulk has, when `bytes` took `time` besides what an empty stream takes: about a
// tenth of a second's, within [kLeastBulkBytes, kMostBulkBytes].
inline constexpr uint64_t kLeastBulkBytes = 16 << 10;
inline constexpr uint64_t kMostBulkBytes = 16 << 20;
uint64_t BulkBytes(uint64_t bytes, Duration time);

// The size of the bulk is found with trials, each eight times larger than the one before, up to
// kLargestTrialBytes: the first takes a link of 4 kB/s as long as LinkProber has patience. One that
// took so long is the last, since the next could take longer than that.
inline constexpr uint64_t kLargestTrialBytes = 1 << 20;
inline constexpr int kTrialGrowth = 8;
inline constexpr Duration kLongTrial = std::chrono::milliseconds(250);

// Of the frames of a bulk: `extent_bytes`, but small enough that there are some.
uint32_t BulkPayloadBytes(uint64_t bulk_bytes, uint32_t extent_bytes);

}  // namespace tandem
