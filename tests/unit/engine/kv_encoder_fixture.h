#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/handoff/kv_encoder.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "tests/unit/kvstore/codec/codec_data.h"

namespace tandem::kv_encoder {

// The KV of the engine, one extent of it, and links that are slower or faster than every codec.
inline constexpr KvLayout kEncoderLayout = {
    .num_layers = 2, .num_kv_heads = 2, .head_dim = 64, .block_tokens = 16, .dtype = DType::kBF16};
inline constexpr ExtentShape kEncoderShape = {DType::kBF16, 2, 64, 16};
inline constexpr SendLink kSlowLink = {.takes_any_memory = true, .gigabytes_per_second = 0.001};
inline constexpr SendLink kEndlessLink = {.takes_any_memory = true, .gigabytes_per_second = 1e6};

// Time passes with each look at it, so that rates are not endless.
class TickingClock final : public Clock {
 public:
  TimePoint Now() const override { return now_ += std::chrono::microseconds(10); }

 private:
  mutable TimePoint now_{};
};

// A peer that reads these codecs and has these tables.
inline HandoffTarget TargetThatReads(std::vector<CodecId> codecs,
                                     std::vector<uint64_t> tables = {}) {
  HandoffTarget target;
  target.data_address = "decode-1:7000";
  target.reads = {.codecs = std::move(codecs), .tables = std::move(tables)};
  return target;
}

// A peer that reads three codecs, none of which loses anything.
inline const HandoffTarget kReadsAll =
    TargetThatReads({CodecId::kRaw, CodecId::kF3, CodecId::kMaskRice});

// An encoder of the KV of one engine, which the test starts.
class KvEncoderTest : public testing::Test {
 protected:
  void Start(std::optional<CodecId> codec, int64_t most_bytes = 1 << 20) {
    encoder_ = std::make_unique<KvEncoder>(
        KvEncoder::Options{.layout = kEncoderLayout, .codec = codec, .most_bytes = most_bytes},
        clock_);
  }
  void MakeTables() {
    for (uint64_t seed = 0; encoder_->calibrates(); ++seed) {
      ASSERT_LT(seed, 65u) << "1,024 tokens are enough";
      for (const int32_t layer : {0, 1}) {
        encoder_->Calibrate(layer, LikeKv(kEncoderShape, seed));
      }
    }
  }
  CodecId Chosen(const HandoffTarget& target, const SendLink& link,
                 KvQuality quality = KvQuality::kExact) {
    const StreamEncoding encoding =
        encoder_->Choose(target, {.link = link, .bytes = 10 << 20, .quality = quality});
    return encoding.codec == nullptr ? CodecId::kRaw : encoding.codec->id();
  }

  TickingClock clock_;
  std::unique_ptr<KvEncoder> encoder_;
};

}  // namespace tandem::kv_encoder
