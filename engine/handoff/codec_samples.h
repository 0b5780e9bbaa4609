#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "kvstore/codec/kv_codec.h"
#include "scheduler/latency_model/codec_model.h"

namespace tandem {

// Extents of the first KV that leaves a worker, with which its codecs are timed. Thread-compatible.
class CodecSamples {
 public:
  CodecSamples(const ExtentShape& shape, int32_t num_layers)
      : shape_(shape), num_layers_(num_layers) {}

  // Keeps a copy of an extent that has the samples' shape, unless there are enough of its layer.
  void Keep(int32_t layer, std::span<const std::byte> extent);
  // How fast one thread encodes and decodes the samples, and how small they become.
  CodecModel Measure(const KvCodec& codec, const Clock& clock) const;

 private:
  ExtentShape shape_;
  int32_t num_layers_;
  std::vector<int32_t> layers_;
  std::vector<std::byte> bytes_;  // the sampled extents, one after the other
};

// The rate of processing `bytes` in the time `took`; 0 where no time was measured.
double BytesPerSecond(size_t bytes, Duration took);

}  // namespace tandem
