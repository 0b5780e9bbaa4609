#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "scheduler/latency_model/step_features.h"

namespace tandem {

// A codec on the way of a transfer. KV is encoded, sent and decoded piece by piece and at the same time,
// so that the slowest of the three decides.
struct CodecModel {
  double ratio = 1;                    // bytes of KV for each byte on the wire
  double encode_bytes_per_second = 0;  // of KV, as far as can be counted on; 0: no time
  double decode_bytes_per_second = 0;  // likewise
  // Bytes of KV in one piece: the first piece is encoded, and the last one decoded, while nothing is sent.
  int64_t piece_bytes = 0;
  // What transfers took longer than that, as was observed: threads wait for a core.
  double more_seconds_per_byte = 0;

  // What moving `bytes` of KV takes over a link of so many bytes per second, which is not 0.
  ModelTime Transfer(int64_t bytes, double link_bytes_per_second) const;
};

// A codec must shorten the transfer by so much to take the place of another one, so that noise in what was
// measured does not make links change back and forth, and raw KV is not given up for next to nothing.
inline constexpr double kLeastCodecGain = 0.05;

// The index of the codec that moves `bytes` of KV the fastest; `previous` stays unless another one is faster
// by kLeastCodecGain. `codecs` is not empty.
size_t FastestCodec(std::span<const CodecModel> codecs, size_t previous, int64_t bytes,
                    double link_bytes_per_second);

}  // namespace tandem
