// Tables of codecs are made again when the KV that an engine sends no longer fits them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "engine/handoff/kv_encoder.h"
#include "gtest/gtest.h"
#include "tests/unit/engine/kv_encoder_fixture.h"
#include "tests/unit/kvstore/codec/codec_data.h"

namespace tandem::codec_drift_test {
namespace {

using kv_encoder::kEncoderShape;
using kv_encoder::kReadsAll;
using kv_encoder::kSlowLink;
using kv_encoder::KvEncoderTest;
using kv_encoder::TargetThatReads;

// KV whose exponents are all smaller by 8.
std::vector<std::byte> LikeOtherKv(uint64_t seed) {
  std::vector<std::byte> extent = LikeKv(kEncoderShape, seed);
  for (size_t i = 0; i < extent.size(); i += sizeof(uint16_t)) {
    uint16_t word;
    std::memcpy(&word, &extent[i], sizeof(word));
    constexpr uint16_t kExponents = 0x7f80;
    const int exponent = std::max((word & kExponents) - (8 << 7), 0);
    word = static_cast<uint16_t>((word & ~kExponents) | (exponent & kExponents));
    std::memcpy(&extent[i], &word, sizeof(word));
  }
  return extent;
}

class CodecDriftTest : public KvEncoderTest {
 protected:
  CodecDriftTest() {
    for (uint64_t seed = 0; seed < 64; ++seed) extents_.push_back(LikeOtherKv(seed));
  }
  size_t Encode(const KvCodec& codec, uint64_t i) {
    std::vector<std::byte> out(kEncoderShape.Bytes());
    const ExtentPlace place = {.layer = static_cast<int32_t>(i % 2)};
    const std::vector<std::byte>& extent = extents_[i / 2 % extents_.size()];
    return encoder_->Encode(&codec, place, 16, extent, out).size.value_or(out.size());
  }
  // Encodes so much KV that new tables would be there if the codec's no longer fitted.
  void EncodeAWindow(const KvCodec& codec) {
    const size_t extents = 128 + CodecDrift::kWindowBytes / kEncoderShape.Bytes();
    for (uint64_t i = 0; i < extents; ++i) Encode(codec, i);
  }
  EngineStats Stats() const {
    EngineStats stats;
    encoder_->AddTo(stats);
    return stats;
  }

  std::vector<std::vector<std::byte>> extents_;
};

TEST_F(CodecDriftTest, TablesThatNoLongerFitAreMadeAgain) {
  Start(CodecId::kMaskRice);
  MakeTables();
  EXPECT_EQ(Stats().codec_calibrations, 1u);
  const auto old = encoder_->Choose(kReadsAll, {.link = kSlowLink, .bytes = 1 << 20}).codec;
  const HandoffTarget has_old = TargetThatReads({CodecId::kMaskRice}, {old->tables_id()});
  EncodeAWindow(*old);
  EXPECT_EQ(Stats().codec_calibrations, 2u);
  const StreamEncoding next = encoder_->Choose(has_old, {.link = kSlowLink, .bytes = 1 << 20});
  EXPECT_NE(next.codec->tables_id(), old->tables_id());
  EXPECT_FALSE(next.tables.empty());
  EXPECT_LT(Encode(*next.codec, 500) * 10, Encode(*old, 500) * 9);

  const uint64_t before = Stats().wire_codecs[1].kv_bytes();
  Encode(*old, 1);
  EXPECT_EQ(Stats().wire_codecs[1].kv_bytes(), before + kEncoderShape.Bytes())
      << "a stream may still have the old tables";
  EncodeAWindow(*next.codec);
  EncodeAWindow(*next.codec);
  EXPECT_EQ(Stats().codec_calibrations, 2u);
}

// A block that is not full has more headers for its KV.
TEST_F(CodecDriftTest, BlocksThatAreNotFullSayNothingOfTables) {
  CodecDrift drift;
  EXPECT_FALSE(drift.Add(CodecDrift::kWindowBytes - 1, CodecDrift::kWindowBytes - 1, 1.5));
  EXPECT_TRUE(drift.Add(1, 1, 1.5));
  EXPECT_FALSE(drift.Add(1, 1, 1.5)) << "another window began";
  EXPECT_FALSE(drift.Add(CodecDrift::kWindowBytes * 3 / 2, CodecDrift::kWindowBytes, 1.54));
  EXPECT_TRUE(drift.Add(CodecDrift::kWindowBytes * 3 / 2, CodecDrift::kWindowBytes, 1.56));
  Start(CodecId::kMaskRice);
  MakeTables();
  const auto codec = encoder_->Choose(kReadsAll, {.link = kSlowLink, .bytes = 1 << 20}).codec;
  const std::vector<std::byte> extent = LikeKv(kEncoderShape, 9);
  std::vector<std::byte> out(extent.size());
  for (size_t bytes = 0; bytes < 2 * CodecDrift::kWindowBytes; bytes += extent.size() / 16) {
    encoder_->Encode(codec.get(), {.layer = 1}, 1, extent, out);
  }
  EXPECT_FALSE(encoder_->calibrates());
}

}  // namespace
}  // namespace tandem::codec_drift_test
