#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "scheduler/latency_model/step_features.h"

namespace tandem {

// The speed of a codec for KV transfers. KV is encoded, sent and decoded piece by piece and at the
// same time, so that the slowest of the three stages decides.
struct CodecModel {
  double ratio = 1;                    // bytes of KV for each byte on the wire
  double encode_bytes_per_second = 0;  // of KV, a rate to rely on; 0: takes no time
  double decode_bytes_per_second = 0;  // of KV, a rate to rely on; 0: takes no time
  // Bytes of KV in one piece: the first piece is encoded, and the last one decoded, while nothing
  // is sent.
  int64_t piece_bytes = 0;
  // The time by which observed transfers exceeded the time of the three stages, for each byte of
  // KV: threads wait for a core.
  double more_seconds_per_byte = 0;

  // The time to move `bytes` of KV over a link of link_bytes_per_second, which is above 0.
  ModelTime Transfer(int64_t bytes, double link_bytes_per_second) const;
};

// The share by which a codec must shorten the transfer to replace the codec in use, so that noise
// in the measurements does not make links switch back and forth, and raw KV is not given up for
// next to nothing.
inline constexpr double kLeastCodecGain = 0.05;

// The index of the codec that moves `bytes` of KV the fastest; `previous` stays unless another one
// is faster by kLeastCodecGain. `codecs` is not empty.
size_t FastestCodec(std::span<const CodecModel> codecs, size_t previous, int64_t bytes,
                    double link_bytes_per_second);

}  // namespace tandem
