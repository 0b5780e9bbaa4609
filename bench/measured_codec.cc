#include "bench/measured_codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <ctime>

#include "base/status.h"
#include "bench/result.h"
#include "hwy/targets.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

// The bits of an f16 as a number.
float FloatOfF16(uint16_t word) {
  const auto magnitude = static_cast<uint32_t>(word & 0x7fff) << 13;
  const float value = std::bit_cast<float>(magnitude) * 0x1p112f;
  return (word & 0x8000) != 0 ? -value : value;
}

std::vector<float> FloatsOf(DType dtype, std::span<const std::byte> raw) {
  std::vector<float> floats(raw.size() / static_cast<size_t>(SizeOf(dtype)));
  if (dtype == DType::kF32) {
    std::memcpy(floats.data(), raw.data(), raw.size());
    return floats;
  }
  for (size_t i = 0; i < floats.size(); ++i) {
    uint16_t word = 0;
    std::memcpy(&word, raw.data() + i * sizeof(word), sizeof(word));
    floats[i] =
        dtype == DType::kF16 ? FloatOfF16(word) : std::bit_cast<float>(uint32_t{word} << 16);
  }
  return floats;
}

// Sums over all values of K or of V.
struct ErrorSums {
  double error = 0;
  double value = 0;

  void Add(std::span<const float> before, std::span<const float> after) {
    for (size_t i = 0; i < before.size(); ++i) {
      const double difference = double{after[i]} - double{before[i]};
      error += difference * difference;
      value += double{before[i]} * double{before[i]};
    }
  }
  double Relative() const { return value == 0 ? 0 : std::sqrt(error / value); }
};

double Ratio(size_t raw, size_t frames) {
  return static_cast<double>(raw) / static_cast<double>(frames);
}

// Lets Highway use the instructions of one target for as long as it lives; 0 changes nothing.
class ScopedTarget {
 public:
  explicit ScopedTarget(int64_t target) : set_(target != 0) {
    if (set_) hwy::GetChosenTarget().Update(target);
  }
  ~ScopedTarget() {
    if (set_) hwy::GetChosenTarget().DeInit();
  }
  ScopedTarget(const ScopedTarget&) = delete;
  ScopedTarget& operator=(const ScopedTarget&) = delete;

 private:
  const bool set_;
};

}  // namespace

double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

MeasuredCodec::MeasuredCodec(const Corpus& corpus, std::span<const Prompt> prompts,
                             Contender contender)
    : corpus_(corpus), prompts_(prompts), contender_(std::move(contender)) {
  for (const Prompt& prompt : prompts_) {
    size_t bytes = 0;
    ForEachTaken(prompt, [&](int32_t, auto extent) { bytes += extent.size(); });
    prompt_bytes_.push_back(bytes);
    raw_bytes_ += bytes;
  }
  frames_.bytes.resize(raw_bytes_ + raw_bytes_ / corpus.shape.Bytes() * kCodecHeaderBytes);
  back_.resize(corpus.shape.Bytes());
}

// Calls `function(layer, extent)` for those extents of the text that the codec takes.
template <typename Function>
void MeasuredCodec::ForEachTaken(const Prompt& prompt, Function function) const {
  size_t index = 0;
  corpus_.ForEach(prompt, [&](int32_t layer, std::span<const std::byte> extent) {
    if (index++ % contender_.every == 0) function(layer, extent);
  });
}

absl::Status MeasuredCodec::RunOnce(int64_t target) {
  const ScopedTarget scope(target);
  Rates& rates = rates_[target];
  double began = CpuSeconds();
  RETURN_IF_ERROR(Encode());
  rates.encode.push_back(GigabytesPerSecond(began));
  began = CpuSeconds();
  RETURN_IF_ERROR(Decode([](std::span<const std::byte>) {}));
  rates.decode.push_back(GigabytesPerSecond(began));
  return absl::OkStatus();
}

double MeasuredCodec::EncodeRate() const { return Median(rates_.at(0).encode); }

absl::StatusOr<std::pair<double, double>> MeasuredCodec::Errors() {
  RETURN_IF_ERROR(Encode());
  ErrorSums k;
  ErrorSums v;
  RETURN_IF_ERROR(Decode([&](std::span<const std::byte> extent) {
    const DType dtype = corpus_.shape.dtype;
    const std::vector<float> before = FloatsOf(dtype, extent);
    const std::vector<float> after = FloatsOf(dtype, back_);
    const size_t half = before.size() / 2;
    k.Add(std::span(before).first(half), std::span(after).first(half));
    v.Add(std::span(before).subspan(half), std::span(after).subspan(half));
  }));
  return std::pair(k.Relative(), v.Relative());
}

Json MeasuredCodec::ToJson() const {
  double worst = 1e9;
  size_t total = 0;
  for (size_t i = 0; i < prompts_.size(); ++i) {
    total += prompt_frames_[i];
    worst = std::min(worst, Ratio(prompt_bytes_[i], prompt_frames_[i]));
  }
  Json others = Json::object();
  for (const auto& [target, rates] : rates_) {
    if (target == 0) continue;
    others[hwy::TargetName(target)] = {{"encode_gb_per_s", Median(rates.encode)},
                                       {"decode_gb_per_s", Median(rates.decode)}};
  }
  return {{"codec", contender_.name},          {"one_extent_in", contender_.every},
          {"ratio", Ratio(raw_bytes_, total)}, {"worst_prompt", worst},
          {"encode_gb_per_s", EncodeRate()},   {"decode_gb_per_s", Median(rates_.at(0).decode)},
          {"other_targets", std::move(others)}};
}

double MeasuredCodec::GigabytesPerSecond(double began) const {
  return static_cast<double>(raw_bytes_) / 1e9 / (CpuSeconds() - began);
}

absl::Status MeasuredCodec::Encode() {
  frames_.sizes.clear();
  prompt_frames_.clear();
  absl::Status status;
  size_t at = 0;
  for (const Prompt& prompt : prompts_) {
    const size_t first = at;
    ForEachTaken(prompt, [&](int32_t layer, std::span<const std::byte> extent) {
      const auto size = EncodeFrame(contender_.codec.get(), corpus_.shape, {.layer = layer}, extent,
                                    std::span(frames_.bytes).subspan(at));
      status.Update(size.status());
      frames_.sizes.push_back(size.value_or(0));
      at += frames_.sizes.back();
    });
    prompt_frames_.push_back(at - first);
  }
  return status;
}

// What comes back is compared in the hash of each frame, unless the codec changes it. Calls
// `each(extent)` with what was encoded when it lies decoded in back_.
template <typename Function>
absl::Status MeasuredCodec::Decode(Function each) {
  absl::Status status;
  size_t at = 0;
  size_t index = 0;
  for (const Prompt& prompt : prompts_) {
    ForEachTaken(prompt, [&](int32_t layer, std::span<const std::byte> extent) {
      const size_t size = frames_.sizes[index++];
      status.Update(DecodeFrame(contender_.codec.get(), corpus_.shape, layer,
                                std::span(frames_.bytes).subspan(at, size), back_));
      at += size;
      each(extent);
    });
  }
  return status;
}

}  // namespace tandem
