#include "scheduler/latency_model/codec_model.h"

#include <algorithm>

namespace tandem {
namespace {

double SecondsFor(int64_t bytes, double bytes_per_second) {
  return bytes_per_second > 0 ? static_cast<double>(bytes) / bytes_per_second : 0;
}

}  // namespace

ModelTime CodecModel::Transfer(int64_t bytes, double link_bytes_per_second) const {
  const int64_t piece = std::min(piece_bytes, bytes);
  const double flow = std::max({SecondsFor(bytes, link_bytes_per_second * ratio),
                                SecondsFor(bytes, encode_bytes_per_second),
                                SecondsFor(bytes, decode_bytes_per_second)});
  return std::chrono::duration<double>(flow + SecondsFor(piece, encode_bytes_per_second) +
                                       SecondsFor(piece, decode_bytes_per_second) +
                                       static_cast<double>(bytes) * more_seconds_per_byte);
}

size_t FastestCodec(std::span<const CodecModel> codecs, size_t previous, int64_t bytes,
                    double link_bytes_per_second) {
  const auto time_of = [&](size_t index) {
    return codecs[index].Transfer(bytes, link_bytes_per_second).count();
  };
  size_t best = 0;
  for (size_t i = 1; i < codecs.size(); ++i) {
    if (time_of(i) < time_of(best)) best = i;
  }
  if (previous >= codecs.size()) previous = 0;
  return time_of(best) <= time_of(previous) * (1 - kLeastCodecGain) ? best : previous;
}

}  // namespace tandem
