#include "kvstore/codec/kv_codec.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/hash.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "tests/unit/kvstore/codec/codec_data.h"

namespace tandem::kv_codec_test {
namespace {

using Bytes = std::vector<std::byte>;

std::shared_ptr<const CodecTables> Shared(CodecTables tables) {
  return std::make_shared<const CodecTables>(std::move(tables));
}

absl::StatusOr<Bytes> Framed(const KvCodec* codec, const ExtentShape& shape, int32_t layer,
                             const Bytes& raw) {
  Bytes frame(MostFrameBytes(shape));
  auto size = EncodeFrame(codec, shape, {.layer = layer}, raw, frame);
  if (!size.ok()) return size.status();
  frame.resize(*size);
  return frame;
}

// What every codec must do for KV of every type.
class KvCodecTest : public testing::TestWithParam<std::tuple<CodecId, DType>> {
 protected:
  static ExtentShape Shape(int32_t heads, int32_t head_dim, int32_t tokens) {
    return {std::get<1>(GetParam()), heads, head_dim, tokens};
  }
  static std::unique_ptr<KvCodec> Codec(const ExtentShape& shape) {
    const CodecId id = std::get<0>(GetParam());
    if (id == CodecId::kRaw) return nullptr;
    return NewKvCodec(id, Shared(TablesFor(shape, 2)));
  }
  static void RoundTrip(const KvCodec* codec, const ExtentShape& shape, const Bytes& raw,
                        const std::string& what) {
    const auto frame = Framed(codec, shape, 1, raw);
    ASSERT_TRUE(frame.ok()) << frame.status() << what;
    Bytes back(raw.size());
    ASSERT_EQ(DecodeFrame(codec, shape, 1, *frame, back), absl::OkStatus()) << what;
    ASSERT_EQ(back, raw) << what;
    EXPECT_EQ(FrameBytes(*frame).value_or(0), frame->size()) << what;
  }
  void TearDown() override { hwy::GetChosenTarget().DeInit(); }
};

TEST_P(KvCodecTest, EveryExtentComesBackBitForBit) {
  for (const int32_t head_dim : {8, 24, 64, 72, 128, 256}) {
    for (const int32_t tokens : {1, 2, 3, 7, 16, 33}) {
      const ExtentShape shape = Shape(3, head_dim, tokens);
      const auto codec = Codec(shape);
      const std::string what = fmt::format(" at head_dim {}, {} tokens", head_dim, tokens);
      RoundTrip(codec.get(), shape, RandomBits(shape, 5), "random bits" + what);
      RoundTrip(codec.get(), shape, LikeKv(shape, 5), "like KV" + what);
      for (const int value : {0x00, 0x80, 0x7f, 0xff}) {
        RoundTrip(codec.get(), shape, Bytes(shape.Bytes(), static_cast<std::byte>(value)),
                  fmt::format("all bytes {}{}", value, what));
      }
    }
  }
}

TEST_P(KvCodecTest, EveryNumberOfTokensComesBack) {
  for (int32_t tokens = 1; tokens <= 256; tokens += tokens < 40 ? 1 : 36) {
    const ExtentShape shape = Shape(1, 64, tokens);
    RoundTrip(Codec(shape).get(), shape, LikeKv(shape, 3), fmt::format("{} tokens", tokens));
  }
}

// Half of the values are as usual and half are any bits, so that many exponents have no rank.
TEST_P(KvCodecTest, ExponentsThatWereNeverSeenComeBack) {
  const ExtentShape shape = Shape(2, 64, 16);
  const auto codec = Codec(shape);
  const Bytes any = RandomBits(shape, 9);
  for (const size_t share : {2, 3, 10, 100}) {
    Bytes raw = LikeKv(shape, 3);
    for (size_t i = 0; i < raw.size(); i += share) raw[i] = any[i];
    RoundTrip(codec.get(), shape, raw, fmt::format("one byte in {}", share));
  }
}

TEST_P(KvCodecTest, AFrameNeverTakesMoreThanTheExtentAndItsHeader) {
  const ExtentShape shape = Shape(2, 64, 16);
  const auto codec = Codec(shape);
  const auto frame = Framed(codec.get(), shape, 0, RandomBits(shape, 2));
  ASSERT_TRUE(frame.ok());
  EXPECT_LE(frame->size(), MostFrameBytes(shape));
}

TEST_P(KvCodecTest, AFrameThatDoesNotFitIsRefused) {
  const ExtentShape shape = Shape(2, 64, 16);
  const auto codec = Codec(shape);
  const Bytes raw = LikeKv(shape, 2);
  const size_t needed = Framed(codec.get(), shape, 0, raw)->size();
  for (size_t size = 0; size + 1024 < needed; size += 97) {
    Bytes out(size);
    EXPECT_EQ(EncodeFrame(codec.get(), shape, {}, raw, out).status().code(),
              absl::StatusCode::kResourceExhausted)
        << size;
  }
}

TEST_P(KvCodecTest, DamageIsFoundOrChangesNothing) {
  const ExtentShape shape = Shape(1, 24, 3);
  const auto codec = Codec(shape);
  const Bytes raw = LikeKv(shape, 2);
  const Bytes frame = *Framed(codec.get(), shape, 1, raw);
  Bytes back(raw.size());
  for (size_t size = 0; size < frame.size(); ++size) {
    EXPECT_FALSE(DecodeFrame(codec.get(), shape, 1, std::span(frame).first(size), back).ok());
  }
  for (size_t bit = 0; bit < 8 * frame.size(); ++bit) {
    Bytes damaged = frame;
    damaged[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    const bool decoded = DecodeFrame(codec.get(), shape, 1, damaged, back).ok();
    EXPECT_TRUE(!decoded || back == raw) << bit;
  }
}

TEST_P(KvCodecTest, OnlyTheExpectedShapeIsDecoded) {
  const ExtentShape shape = Shape(2, 64, 16);
  const auto codec = Codec(shape);
  const Bytes frame = *Framed(codec.get(), shape, 1, LikeKv(shape, 2));
  for (const ExtentShape& other : {Shape(2, 64, 15), Shape(1, 64, 32), Shape(4, 32, 16)}) {
    Bytes back(other.Bytes());
    EXPECT_EQ(DecodeFrame(codec.get(), other, 1, frame, back).code(),
              absl::StatusCode::kFailedPrecondition);
  }
}

// The instructions of this machine's targets differ, and their frames must not.
TEST_P(KvCodecTest, EveryTargetWritesAndReadsTheSameBytes) {
  const ExtentShape shape = Shape(2, 72, 5);
  const auto codec = Codec(shape);
  std::vector<int64_t> targets = {HWY_SCALAR};  // stands for the baseline
  for (const int64_t target : {int64_t{HWY_AVX3}, int64_t{HWY_AVX2}, int64_t{HWY_NEON}}) {
    if ((hwy::SupportedTargets() & target) != 0) targets.push_back(target);
  }
  for (const Bytes& raw : {LikeKv(shape, 4), RandomBits(shape, 4)}) {
    const Bytes expected = *Framed(codec.get(), shape, 0, raw);
    for (const int64_t target : targets) {
      hwy::GetChosenTarget().Update(target);
      EXPECT_EQ(*Framed(codec.get(), shape, 0, raw), expected) << hwy::TargetName(target);
      Bytes back(raw.size());
      EXPECT_EQ(DecodeFrame(codec.get(), shape, 0, expected, back), absl::OkStatus());
      EXPECT_EQ(back, raw) << hwy::TargetName(target);
    }
    hwy::GetChosenTarget().DeInit();
  }
}

constexpr CodecId kAllCodecs[] = {CodecId::kRaw, CodecId::kF3, CodecId::kMaskRice,
                                  CodecId::kBytePlane};
INSTANTIATE_TEST_SUITE_P(All, KvCodecTest,
                         testing::Combine(testing::ValuesIn(kAllCodecs),
                                          testing::Values(DType::kF32, DType::kF16, DType::kBF16,
                                                          DType::kF8E4M3)),
                         [](const auto& info) {
                           std::string name =
                               fmt::format("{}_{}", CodecName(std::get<0>(info.param)),
                                           Name(std::get<1>(info.param)));
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

double RatioOf(CodecId id, DType dtype) {
  const ExtentShape shape = {dtype, 2, 64, 16};
  const auto codec = NewKvCodec(id, Shared(TablesFor(shape, 1)));
  size_t frames = 0;
  size_t raw = 0;
  for (uint64_t seed = 100; seed < 120; ++seed) {
    frames += Framed(codec.get(), shape, 0, LikeKv(shape, seed))->size();
    raw += shape.Bytes();
  }
  return static_cast<double>(raw) / static_cast<double>(frames);
}

// Normal values in every channel: their exponents have an entropy of 2.55 bits.
TEST(KvCodecRatioTest, KvTakesAboutTwoThirds) {
  EXPECT_GT(RatioOf(CodecId::kMaskRice, DType::kBF16), 1.46);
  EXPECT_GT(RatioOf(CodecId::kF3, DType::kBF16), 1.38);
  EXPECT_GT(RatioOf(CodecId::kMaskRice, DType::kF16), 1.15);
  EXPECT_GT(RatioOf(CodecId::kMaskRice, DType::kF32), 1.18);
  EXPECT_GT(RatioOf(CodecId::kMaskRice, DType::kF8E4M3), 1.1);
}

TEST(KvCodecRatioTest, WhatGainsNothingIsRaw) {
  const ExtentShape shape = {DType::kBF16, 2, 64, 16};
  const auto codec = NewKvCodec(CodecId::kMaskRice, Shared(TablesFor(shape, 1)));
  const Bytes raw = RandomBits(shape, 1);
  const Bytes frame = *Framed(codec.get(), shape, 0, raw);
  EXPECT_EQ(frame.size(), MostFrameBytes(shape));
  Bytes back(raw.size());
  EXPECT_EQ(DecodeFrame(nullptr, shape, 0, frame, back), absl::OkStatus());
  EXPECT_EQ(back, raw);
}

TEST(KvCodecTablesTest, OtherTablesAreRefused) {
  const ExtentShape shape = {DType::kBF16, 2, 64, 16};
  const auto codec = NewKvCodec(CodecId::kF3, Shared(TablesFor(shape, 1)));
  CodecCalibrator calibrator(shape, 1);
  calibrator.Add(0, LikeKv({DType::kBF16, 2, 64, 8}, 77));
  const auto other = NewKvCodec(CodecId::kF3, Shared(calibrator.Build()));
  const auto same = NewKvCodec(CodecId::kF3, Shared(TablesFor(shape, 1)));
  const auto rice = NewKvCodec(CodecId::kMaskRice, Shared(TablesFor(shape, 1)));
  const Bytes raw = LikeKv(shape, 2);
  const Bytes frame = *Framed(codec.get(), shape, 0, raw);
  Bytes back(raw.size());
  EXPECT_EQ(DecodeFrame(same.get(), shape, 0, frame, back), absl::OkStatus());
  EXPECT_EQ(DecodeFrame(other.get(), shape, 0, frame, back).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(DecodeFrame(rice.get(), shape, 0, frame, back).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(DecodeFrame(nullptr, shape, 0, frame, back).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Framed(codec.get(), shape, 1, raw).status().code(), absl::StatusCode::kInvalidArgument)
      << "the tables have one layer";
}

// What lies as far below the top as the tables reach, and what lies beyond, must not be taken for
// one another.
TEST(KvCodecTablesTest, WhatLiesBeyondTheLastDistanceComesBack) {
  const ExtentShape shape = {DType::kBF16, 1, 64, 16};
  const auto with_exponents = [&](std::vector<uint8_t> exponents) {
    Bytes raw;
    for (size_t i = 0; i < shape.Bytes() / 2; ++i) {
      const uint16_t word =
          BF16Fields::Join(exponents[i % 16 % exponents.size()], static_cast<uint16_t>(i & 0xff));
      const auto* const bytes = reinterpret_cast<const std::byte*>(&word);
      raw.insert(raw.end(), bytes, bytes + sizeof(word));
    }
    return raw;
  };
  CodecCalibrator calibrator(shape, 1);
  // The usual exponent is 127, so the top is 143: 80 lies at the last distance and 10 beyond it.
  for (int i = 0; i < 4; ++i) calibrator.Add(0, with_exponents({127}));
  calibrator.Add(0, with_exponents({80}));
  const auto tables = Shared(calibrator.Build());
  const Bytes raw = with_exponents({127, 80, 127, 10, 127, 127, 255, 127});
  for (const CodecId id : {CodecId::kF3, CodecId::kMaskRice}) {
    const auto codec = NewKvCodec(id, tables);
    Bytes payload(2 * MostFrameBytes(shape));
    const auto size = codec->Encode(shape, {}, raw, payload);
    ASSERT_TRUE(size.has_value());
    Bytes back(raw.size());
    EXPECT_TRUE(codec->Decode(shape, 0, std::span(payload).first(*size), back));
    EXPECT_EQ(back, raw) << CodecName(id);
  }
}

TEST(KvCodecFrameTest, APayloadWithMoreBitsThanItsRowsNeedIsRefused) {
  const ExtentShape shape = {DType::kBF16, 1, 64, 1};
  const auto codec = NewKvCodec(CodecId::kMaskRice, Shared(TablesFor(shape, 1)));
  const Bytes raw = LikeKv(shape, 3);
  Bytes payload(2 * MostFrameBytes(shape));
  payload.resize(codec->Encode(shape, {}, raw, payload).value_or(0));
  constexpr size_t kStreamAt = 2 * (64 + 2 * 8);  // behind a row of K and one of V
  uint32_t bytes = 0;
  std::memcpy(&bytes, payload.data() + kStreamAt, sizeof(bytes));
  Bytes back(raw.size());
  EXPECT_TRUE(codec->Decode(shape, 0, payload, back));
  payload.insert(payload.begin() + kStreamAt + sizeof(bytes) + bytes, std::byte{0});
  ++bytes;
  std::memcpy(payload.data() + kStreamAt, &bytes, sizeof(bytes));
  EXPECT_FALSE(codec->Decode(shape, 0, payload, back));
}

// The header of docs/kv_codecs.md: these bytes do not change without a new magic.
TEST(KvCodecFrameTest, BytesOfARawFrame) {
  const ExtentShape shape = {DType::kBF16, 1, 8, 3};
  Bytes raw(shape.Bytes());
  for (size_t i = 0; i < raw.size(); ++i) raw[i] = static_cast<std::byte>(i);
  const Bytes frame = *Framed(nullptr, shape, 0, raw);
  std::string hex;
  for (const std::byte byte : std::span(frame).first(24)) {
    hex += fmt::format("{:02x}", std::to_integer<int>(byte));
  }
  EXPECT_EQ(hex,
            "54444331"  // "TDC1"
            "00"
            "02"
            "0300"  // raw, bf16, 3 tokens
            "0100"
            "0800"                // a head of 8
            "60000000"            // 96 bytes
            "0000000000000000");  // no tables
  uint64_t hash = 0;
  std::memcpy(&hash, frame.data() + 24, sizeof(hash));
  EXPECT_EQ(hash, Hash64(raw));
  EXPECT_TRUE(std::ranges::equal(std::span(frame).subspan(kCodecHeaderBytes), raw));
}

}  // namespace
}  // namespace tandem::kv_codec_test
