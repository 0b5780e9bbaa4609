#pragma once

#include <cstdint>
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
  Duration setup{};
  Duration operation{};
};

// Takes the median of each timing. The rate is what further bytes cost: the time of an empty stream
// is taken off, that of the frames is not, since KV comes in frames too.
LinkProbe Evaluate(const ProbeTimings& timings);

// How many bytes the bulk has, when the first `bytes` took `time`: about a tenth of a second's,
// within [1 MiB, 16 MiB].
uint64_t BulkBytes(uint64_t bytes, Duration time);

// Whether a link that was probed is less than half as fast of late, over at least 64 MB that moved
// since.
bool FarBelowProbe(const LinkProbe& probe, double gigabytes_per_second, uint64_t bytes_since);

}  // namespace tandem
