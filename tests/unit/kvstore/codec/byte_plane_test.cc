#include "kvstore/codec/byte_plane.h"

#include <cstring>
#include <initializer_list>
#include <random>
#include <thread>
#include <vector>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "kvstore/codec/plane_backends.h"
#include "kvstore/codec/plane_frame.h"
#include "kvstore/codec/plane_predictors.h"
#include "tests/unit/kvstore/codec/codec_data.h"

namespace tandem::codec::byte_plane_test {
namespace {

using Plane = std::vector<uint8_t>;
using Payload = std::vector<std::byte>;

Plane RandomPlane(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  Plane plane(size);
  for (uint8_t& byte : plane) byte = static_cast<uint8_t>(random());
  return plane;
}

Payload BytesOf(std::initializer_list<int> values) {
  Payload bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

Plane Predicted(Predictor predictor, const PlaneShape& shape, Plane plane) {
  Predict(predictor, shape, plane);
  return plane;
}

TEST(PlanePredictorsTest, EachInvertsItself) {
  for (const PlaneShape& shape : {PlaneShape{1, 1, 1}, PlaneShape{1, 1, 8}, PlaneShape{3, 5, 16},
                                  PlaneShape{2, 7, 9}, PlaneShape{4, 1, 3}, PlaneShape{2, 6, 1}}) {
    const Plane plane = RandomPlane(shape.Bytes(), shape.Bytes());
    for (uint8_t i = 0; i < kNumPredictors; ++i) {
      Plane back = Predicted(Predictor{i}, shape, plane);
      Restore(Predictor{i}, shape, back);
      EXPECT_EQ(back, plane) << int{i} << " at " << shape.head_dim;
    }
  }
}

// Two heads of two tokens of three channels.
TEST(PlanePredictorsTest, EachTakesOffWhatItSays) {
  constexpr PlaneShape kShape = {2, 2, 3};
  const Plane plane = {10, 13, 11, 12, 12, 255, 1, 2, 3, 5, 7, 9};
  EXPECT_EQ(Predicted(Predictor::kRaw, kShape, plane), plane);
  EXPECT_EQ(Predicted(Predictor::kDelta, kShape, plane),
            (Plane{10, 3, 254, 1, 0, 243, 2, 1, 1, 2, 2, 2}));
  EXPECT_EQ(Predicted(Predictor::kXor, kShape, plane),
            (Plane{10, 7, 6, 7, 0, 243, 254, 3, 1, 6, 2, 14}));
  EXPECT_EQ(Predicted(Predictor::kTokenDelta, kShape, plane),
            (Plane{10, 13, 11, 2, 255, 244, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(Predicted(Predictor::kTokenXor, kShape, plane),
            (Plane{10, 13, 11, 6, 1, 244, 1, 2, 3, 4, 5, 10}));
  EXPECT_EQ(Predicted(Predictor::kPairDelta, kShape, plane),
            (Plane{10, 3, 11, 12, 0, 255, 1, 1, 3, 5, 2, 9}));
  EXPECT_EQ(Predicted(Predictor::kPairDeltaTokenDelta, kShape, plane),
            (Plane{10, 3, 11, 2, 253, 244, 1, 1, 3, 4, 1, 6}));
}

Payload Rle(const Plane& plane) {
  Payload out(2 * plane.size() + 1);
  out.resize(EncodeRle(plane, out).value_or(0));
  return out;
}

TEST(RleTest, RunsAreFourToAHundredAndThirtyOneBytes) {
  EXPECT_EQ(Rle(Plane(3, 7)), BytesOf({2, 7, 7, 7}));
  EXPECT_EQ(Rle(Plane(4, 7)), BytesOf({128, 7}));
  EXPECT_EQ(Rle(Plane(131, 7)), BytesOf({255, 7}));
  EXPECT_EQ(Rle(Plane(132, 7)), BytesOf({255, 7, 0, 7}));
  EXPECT_EQ(Rle(Plane(135, 7)), BytesOf({255, 7, 128, 7}));
  EXPECT_EQ(Rle({1, 2, 2, 2, 3, 3, 3, 3, 3, 4}), BytesOf({3, 1, 2, 2, 2, 129, 3, 0, 4}));
}

TEST(RleTest, LiteralsAreUpToAHundredAndTwentyEightBytes) {
  Plane plane;
  for (int i = 0; i < 129; ++i) plane.push_back(static_cast<uint8_t>(i));
  const Payload of_129 = Rle(plane);
  plane.pop_back();
  const Payload of_128 = Rle(plane);
  ASSERT_EQ(of_128.size(), 129u);
  EXPECT_EQ(of_128[0], std::byte{127});
  ASSERT_EQ(of_129.size(), 131u);
  EXPECT_EQ(of_129[0], std::byte{127});
  EXPECT_EQ(of_129[129], std::byte{0});
  EXPECT_EQ(of_129[130], std::byte{128});
}

TEST(RleTest, EveryLengthOfRunAndLiteralsComesBack) {
  for (size_t run = 1; run <= 270; ++run) {
    for (const size_t literals : {0, 1, 127, 128, 129, 257}) {
      Plane plane(run, 9);
      for (size_t i = 0; i < literals; ++i) plane.push_back(static_cast<uint8_t>(i));
      plane.insert(plane.end(), run, 200);
      Plane back(plane.size());
      ASSERT_TRUE(DecodePlane(Backend::kRle, Rle(plane), back)) << run << ' ' << literals;
      ASSERT_EQ(back, plane) << run << ' ' << literals;
    }
  }
}

TEST(RleTest, WhatDoesNotFitIsNotWritten) {
  const Plane plane = RandomPlane(300, 1);
  const size_t needed = Rle(plane).size();
  for (size_t size = 0; size < needed; ++size) {
    Payload out(size);
    EXPECT_FALSE(EncodeRle(plane, out).has_value()) << size;
  }
  Payload out(needed);
  EXPECT_EQ(EncodeRle(plane, out), needed);
}

// A plane of other than the expected size, or a payload that ends too early or goes on.
TEST(PlaneBackendsTest, OnlyExactlyThePlaneIsDecoded) {
  const Plane plane(200, 3);
  Payload zstd(MostZstdBytes(plane.size()));
  zstd.resize(EncodeZstd(plane, zstd));
  const Payload rle = Rle(plane);
  const auto decodes = [](Backend backend, std::span<const std::byte> payload, size_t size) {
    Plane back(size);
    return DecodePlane(backend, payload, back);
  };
  for (const auto& [backend, payload] : {std::pair(Backend::kRle, rle), {Backend::kZstd, zstd}}) {
    EXPECT_TRUE(decodes(backend, payload, 200));
    EXPECT_FALSE(decodes(backend, payload, 199));
    EXPECT_FALSE(decodes(backend, payload, 201));
    EXPECT_FALSE(decodes(backend, payload, 400));
    for (size_t size = 0; size < payload.size(); ++size) {
      EXPECT_FALSE(decodes(backend, std::span(payload).first(size), 200)) << size;
    }
    Payload twice = payload;
    twice.insert(twice.end(), payload.begin(), payload.end());
    EXPECT_FALSE(decodes(backend, twice, 200));
    EXPECT_EQ(decodes(backend, twice, 400), backend == Backend::kRle) << "one zstd frame alone";
  }
}

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
