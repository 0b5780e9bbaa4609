#include "engine/handoff/codec_samples.h"

#include <algorithm>
#include <chrono>

namespace tandem {
namespace {

// The amount of KV that codecs are timed with: enough to measure a rate, at the cost of a few
// milliseconds of one thread, once.
constexpr int64_t kSampleBytes = 2 << 20;

}  // namespace

double BytesPerSecond(size_t bytes, Duration took) {
  const double seconds = std::chrono::duration<double>(took).count();
  return seconds > 0 ? static_cast<double>(bytes) / seconds : 0;
}

// Keeps as much KV of each layer as of any other, because layers compress differently.
void CodecSamples::Keep(int32_t layer, std::span<const std::byte> extent) {
  const int64_t of_layer = std::ranges::count(layers_, layer);
  const int64_t bytes = (of_layer + 1) * num_layers_ * std::ssize(extent);
  if (of_layer > 0 && bytes > kSampleBytes) return;
  layers_.push_back(layer);
  bytes_.insert(bytes_.end(), extent.begin(), extent.end());
}

// Uses the fastest of three runs, because other threads of the process work meanwhile.
CodecModel CodecSamples::Measure(const KvCodec& codec, const Clock& clock) const {
  constexpr int kTimes = 3;
  const size_t num_samples = layers_.size();
  std::vector<std::byte> frames(num_samples * MostFrameBytes(shape_));
  std::vector<std::byte> back(shape_.Bytes());
  std::vector<size_t> sizes(num_samples);
  CodecModel model = {.piece_bytes = static_cast<int64_t>(shape_.Bytes())};
  for (int time = 0; time < kTimes; ++time) {
    const TimePoint began = clock.Now();
    for (size_t i = 0; i < num_samples; ++i) {
      const std::span out =
          std::span(frames).subspan(i * MostFrameBytes(shape_), MostFrameBytes(shape_));
      const auto raw = std::span(bytes_).subspan(i * shape_.Bytes(), shape_.Bytes());
      sizes[i] = EncodeFrame(&codec, shape_, {.layer = layers_[i]}, raw, out).value_or(0);
    }
    const TimePoint encoded = clock.Now();
    for (size_t i = 0; i < num_samples; ++i) {
      DecodeFrame(&codec, shape_, layers_[i],
                  std::span(frames).subspan(i * MostFrameBytes(shape_), sizes[i]), back)
          .IgnoreError();
    }
    const TimePoint decoded = clock.Now();
    model.encode_bytes_per_second =
        std::max(model.encode_bytes_per_second, BytesPerSecond(bytes_.size(), encoded - began));
    model.decode_bytes_per_second =
        std::max(model.decode_bytes_per_second, BytesPerSecond(bytes_.size(), decoded - encoded));
  }
  size_t total = 0;
  for (const size_t size : sizes) total += size;
  model.ratio =
      static_cast<double>(bytes_.size()) / static_cast<double>(std::max<size_t>(total, 1));
  return model;
}

}  // namespace tandem
