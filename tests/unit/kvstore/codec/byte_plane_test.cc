#include "kvstore/codec/byte_plane.h"

#include <cstring>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "kvstore/codec/plane_backends.h"
#include "kvstore/codec/plane_frame.h"
#include "kvstore/codec/plane_predictors.h"
#include "tests/unit/kvstore/codec/codec_data.h"
#include "tests/unit/kvstore/codec/plane_data.h"

namespace tandem::codec::byte_plane_test {
namespace {

using plane_data::BytesOf;
using plane_data::Payload;
using plane_data::Plane;
using plane_data::RandomPlane;

// The size of the payload of an extent, which must come back.
size_t PayloadBytes(const KvCodec& codec, const ExtentShape& shape, const Payload& raw) {
  Payload payload(2 * MostFrameBytes(shape));
  payload.resize(codec.Encode(shape, {}, raw, payload).value_or(0));
  Payload back(raw.size());
  EXPECT_TRUE(codec.Decode(shape, 0, payload, back));
  EXPECT_EQ(back, raw);
  return payload.size();
}

constexpr ExtentShape kShape = {DType::kBF16, 2, 64, 16};

// As the V of layer 0 is where all tokens are the same.
TEST(BytePlaneTest, EqualTokensTakeLittle) {
  const ExtentShape token = {DType::kBF16, 1, 64, 1};
  const Payload row = RandomBits(token, 4);
  Payload raw;
  while (raw.size() < kShape.Bytes()) raw.insert(raw.end(), row.begin(), row.begin() + 128);
  EXPECT_LT(2 * PayloadBytes(*NewBytePlaneCodec(), kShape, raw), raw.size());
}

// Each byte of a channel goes up from token to token by a step of its own. Nothing repeats but the
// differences along the tokens, which the three predictors of the earlier runtime do not take.
TEST(BytePlaneTest, TokensThatGoUpByEqualStepsTakeLittle) {
  constexpr size_t kRow = 128;
  const Payload start = RandomBits(kShape, 4);
  Payload raw(kShape.Bytes());
  for (size_t i = 0; i < raw.size(); ++i) {
    const size_t token = i / kRow % 16;
    const size_t head = i / kRow / 16;
    const auto step = std::to_integer<size_t>(start[head * kRow + i % kRow]);
    const auto from = std::to_integer<size_t>(start[1024 + head * kRow + i % kRow]);
    raw[i] = static_cast<std::byte>(from + token * step);
  }
  EXPECT_LT(2 * PayloadBytes(*NewBytePlaneCodec(), kShape, raw), raw.size());
  const auto runtime = NewBytePlaneCodec(PlanePredictors::kRuntime);
  EXPECT_GT(PayloadBytes(*runtime, kShape, raw), raw.size());
}

// Differences of two bits each, from which one predictor alone makes the extent.
TEST(BytePlaneTest, EachPredictorIsChosenWhereItFits) {
  constexpr ExtentShape kOneLane = {DType::kF8E4M3, 2, 64, 16};
  constexpr PlaneShape kPlane = {2, 16, 64};
  constexpr uint8_t kDifferences[] = {0, 1, 16, 64};
  for (uint8_t i = 0; i < kNumPredictors; ++i) {
    Plane plane = RandomPlane(kPlane.Bytes(), 5);
    for (uint8_t& byte : plane) byte = kDifferences[byte % 4];
    Restore(Predictor{i}, kPlane, plane);
    Payload raw;
    for (int half = 0; half < 2; ++half) {
      for (const uint8_t byte : plane) raw.push_back(std::byte{byte});
    }
    Payload payload(2 * MostFrameBytes(kOneLane));
    ASSERT_TRUE(NewBytePlaneCodec()->Encode(kOneLane, {}, raw, payload).has_value());
    EXPECT_EQ(std::to_integer<int>(payload[0]), i);
    EXPECT_EQ(payload[1], static_cast<std::byte>(Backend::kZstd));
  }
}

// A single token has none before it, so that what is predicted along tokens is the plane itself.
TEST(BytePlaneTest, OfEqualCandidatesTheFirstIsKept) {
  constexpr ExtentShape kToken = {DType::kF8E4M3, 8, 64, 1};
  Payload raw = RandomBits(kToken, 5);
  for (std::byte& byte : raw) byte &= std::byte{0x41};
  Payload payload(2 * MostFrameBytes(kToken));
  ASSERT_TRUE(NewBytePlaneCodec()->Encode(kToken, {}, raw, payload).has_value());
  EXPECT_EQ(payload[0], static_cast<std::byte>(Predictor::kRaw));
  EXPECT_EQ(payload[1], static_cast<std::byte>(Backend::kZstd));
}

TEST(BytePlaneTest, MorePredictorsAreNeverLarger) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3}) {
    const ExtentShape shape = {dtype, 2, 64, 16};
    const Payload raw = LikeKv(shape, 3);
    EXPECT_LE(PayloadBytes(*NewBytePlaneCodec(), shape, raw),
              PayloadBytes(*NewBytePlaneCodec(PlanePredictors::kRuntime), shape, raw))
        << Name(dtype);
  }
}

TEST(BytePlaneTest, LoIsBeforeHiAndKBeforeV) {
  constexpr ExtentShape kSmall = {DType::kBF16, 1, 8, 1};
  Payload raw;
  for (int i = 0; i < 8; ++i) raw.insert(raw.end(), {std::byte{0}, std::byte{2}});
  for (int i = 0; i < 8; ++i) raw.insert(raw.end(), {std::byte{3}, std::byte{4}});
  Payload payload(256);
  payload.resize(NewBytePlaneCodec()->Encode(kSmall, {}, raw, payload).value_or(0));
  Payload expected;
  for (const int value : {0, 2, 3, 4}) {
    // Eight equal bytes are a run of two bytes. Every predictor makes that of zeros: the first is
    // kept.
    const Payload frame = BytesOf({0, 0, 8, 0, 0, 0, 2, 0, 0, 0, 128 + 4, value});
    expected.insert(expected.end(), frame.begin(), frame.end());
  }
  EXPECT_EQ(payload, expected);
}

TEST(BytePlaneTest, AnOddHeadDimComesBack) {
  for (const int32_t head_dim : {1, 3, 7, 65}) {
    for (const int32_t tokens : {1, 2, 5}) {
      const ExtentShape shape = {DType::kF16, 3, head_dim, tokens};
      PayloadBytes(*NewBytePlaneCodec(), shape, RandomBits(shape, 6));
      PayloadBytes(*NewBytePlaneCodec(), shape, LikeKv(shape, 6));
    }
  }
}

// Every byte of the headers counts, and nothing may be missing or follow.
TEST(BytePlaneTest, OtherSizesInAPayloadAreRefused) {
  const auto codec = NewBytePlaneCodec();
  const Payload raw = LikeKv(kShape, 2);
  Payload payload(2 * MostFrameBytes(kShape));
  payload.resize(codec->Encode(kShape, {}, raw, payload).value_or(0));
  Payload back(raw.size());
  ASSERT_TRUE(codec->Decode(kShape, 0, payload, back));
  for (size_t at = 2; at < kPlaneHeaderBytes; ++at) {
    Payload damaged = payload;
    damaged[at] ^= std::byte{0x81};
    EXPECT_FALSE(codec->Decode(kShape, 0, damaged, back)) << at;
  }
  for (const auto& [at, value] : {std::pair(0, int{kNumPredictors}), {1, int{kNumBackends}}}) {
    Payload damaged = payload;
    damaged[static_cast<size_t>(at)] = static_cast<std::byte>(value);
    EXPECT_FALSE(codec->Decode(kShape, 0, damaged, back)) << at;
  }
  for (size_t size = 0; size < payload.size(); ++size) {
    EXPECT_FALSE(codec->Decode(kShape, 0, std::span(payload).first(size), back)) << size;
  }
  payload.push_back(std::byte{0});
  EXPECT_FALSE(codec->Decode(kShape, 0, payload, back));
}

TEST(BytePlaneTest, AFrameOfRandomBytesIsRawAndHasNoTables) {
  const auto codec = NewBytePlaneCodec();
  EXPECT_TRUE(codec->lossless());
  EXPECT_EQ(codec->tables_id(), 0u);
  EXPECT_EQ(CodecName(codec->id()), "byte-plane");
  EXPECT_TRUE(codec->Fits(kShape, 1000));
  EXPECT_FALSE(codec->Fits({DType::kF32, 1024, 1024, 4096}, 0));
  Payload frame(MostFrameBytes(kShape));
  const auto size = EncodeFrame(codec.get(), kShape, {}, RandomBits(kShape, 1), frame);
  EXPECT_EQ(size.value_or(0), MostFrameBytes(kShape));
}

TEST(BytePlaneTest, ThreadsShareACodec) {
  const auto codec = NewBytePlaneCodec();
  const Payload raw = LikeKv(kShape, 8);
  std::vector<size_t> sizes(4);
  std::vector<std::thread> threads;
  for (size_t& size : sizes) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) size = PayloadBytes(*codec, kShape, raw);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sizes, std::vector<size_t>(4, PayloadBytes(*codec, kShape, raw)));
}

}  // namespace
}  // namespace tandem::codec::byte_plane_test
