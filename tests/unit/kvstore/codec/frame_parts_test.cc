#include "kvstore/codec/frame_parts.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "kvstore/codec/byte_plane.h"
#include "kvstore/codec/kv_codec.h"
#include "kvstore/codec/rounded.h"
#include "tests/unit/kvstore/codec/codec_data.h"

namespace tandem::frame_parts_test {
namespace {

using PartsBytes = std::vector<std::byte>;

// An extent whose K and V are the halves of others.
PartsBytes Joined(const PartsBytes& k, const PartsBytes& v) {
  PartsBytes extent(k.begin(), k.begin() + std::ssize(k) / 2);
  extent.insert(extent.end(), v.begin() + std::ssize(v) / 2, v.end());
  return extent;
}
PartsBytes SameKAndV(const ExtentShape& shape, uint64_t seed) {
  const PartsBytes one = LikeKv(shape, seed);
  PartsBytes extent(one.begin(), one.begin() + std::ssize(one) / 2);
  extent.insert(extent.end(), extent.begin(), extent.begin() + std::ssize(one) / 2);
  return extent;
}

struct PartsCase {
  std::string codec;
  ExtentShape shape;
};

// The tables are made of KV whose K and V are the same, so that both are coded alike.
std::unique_ptr<KvCodec> CodecOf(const PartsCase& one) {
  if (one.codec == "raw") return nullptr;
  if (one.codec == "byte-plane") return NewBytePlaneCodec();
  ExtentShape shape = one.shape;
  shape.tokens = 64;
  CodecCalibrator calibrator(shape, 1);
  calibrator.Add(0, SameKAndV(shape, 1));
  const auto tables = std::make_shared<const CodecTables>(calibrator.Build());
  if (one.codec == "rounded") return NewRoundedCodec(tables, 0.1f);
  return NewKvCodec(one.codec == "f3" ? CodecId::kF3 : CodecId::kMaskRice, tables);
}

PartsBytes FrameOf(const KvCodec* codec, const PartsCase& one, const PartsBytes& raw,
                   const ExtentPlace& place = {}) {
  PartsBytes frame(MostFrameBytes(one.shape));
  ExtentParts parts;
  const auto size = EncodeFrame(codec, one.shape, place, raw, frame, &parts);
  EXPECT_TRUE(size.ok()) << size.status();
  frame.resize(size.value_or(0));
  const auto read = PartsOfFrame(frame);
  EXPECT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(parts, read.value_or(ExtentParts{})) << "the encoder and the frame disagree";
  return frame;
}

class FramePartsTest : public testing::TestWithParam<PartsCase> {
 protected:
  void TearDown() override { hwy::GetChosenTarget().DeInit(); }
};

TEST_P(FramePartsTest, KAndVThatAreTheSameTakeTheSame) {
  const PartsCase& one = GetParam();
  const auto codec = CodecOf(one);
  for (const uint64_t seed : {2, 3, 4}) {
    const PartsBytes frame = FrameOf(codec.get(), one, SameKAndV(one.shape, seed));
    const auto parts = PartsOfFrame(frame);
    ASSERT_TRUE(parts.ok()) << parts.status();
    EXPECT_EQ(parts->raw, codec == nullptr);
    EXPECT_EQ(parts->k.kv_bytes + parts->v.kv_bytes, one.shape.Bytes());
    EXPECT_EQ(parts->k.wire_bytes + parts->v.wire_bytes, frame.size());
    EXPECT_EQ(parts->k.escapes, parts->v.escapes);
    // The bits of K end within a byte, and V gets the rest of the last one.
    EXPECT_LE(parts->k.wire_bytes, parts->v.wire_bytes + 1);
    EXPECT_LE(parts->v.wire_bytes, parts->k.wire_bytes + 1);
  }
}

TEST_P(FramePartsTest, WhatKTakesDoesNotDependOnV) {
  const PartsCase& one = GetParam();
  const auto codec = CodecOf(one);
  const PartsBytes k = SameKAndV(one.shape, 5);
  const auto first = PartsOfFrame(FrameOf(codec.get(), one, Joined(k, LikeKv(one.shape, 6))));
  const auto other = PartsOfFrame(FrameOf(codec.get(), one, Joined(k, LikeKv(one.shape, 7))));
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(other.ok()) << other.status();
  if (first->raw != other->raw) GTEST_SKIP() << "one of them saved too little";
  EXPECT_EQ(first->k, other->k);
}

// A frame of another process may be anything: none is read beyond its end, and it has an answer.
TEST_P(FramePartsTest, ADamagedFrameIsRefusedOrHasParts) {
  const PartsCase& one = GetParam();
  const auto codec = CodecOf(one);
  const PartsBytes frame = FrameOf(codec.get(), one, SameKAndV(one.shape, 8));
  for (size_t size = 0; size < frame.size(); size += 7) {
    const PartsBytes shorter(frame.begin(), frame.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_EQ(PartsOfFrame(shorter).status().code(), absl::StatusCode::kDataLoss) << size;
  }
  for (size_t at = 0; at < std::min<size_t>(frame.size(), 400); ++at) {
    PartsBytes damaged = frame;
    damaged[at] ^= std::byte{0x5a};
    const auto parts = PartsOfFrame(damaged);
    if (!parts.ok()) continue;
    EXPECT_EQ(parts->k.wire_bytes + parts->v.wire_bytes, frame.size()) << at;
  }
}

std::vector<PartsCase> PartsCases() {
  std::vector<PartsCase> cases;
  for (const char* const codec : {"raw", "f3", "mask-rice", "byte-plane", "rounded"}) {
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32, DType::kF8E4M3}) {
      if (codec == std::string("rounded") && dtype == DType::kF8E4M3) continue;
      for (const int32_t head_dim : {64, 72, 128}) {
        cases.push_back({codec, {dtype, 2, head_dim, 16}});
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(CodecsAndShapes, FramePartsTest, testing::ValuesIn(PartsCases()),
                         [](const auto& param) {
                           std::string name = param.param.codec + "_" +
                                              std::string(Name(param.param.shape.dtype)) + "_" +
                                              std::to_string(param.param.shape.head_dim);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// Exact tokens, a row with an infinity, and a K that is rounded in finer steps than V.
TEST(RoundedPartsTest, ExactTokensAndRowsCountWhereTheyAre) {
  const PartsCase one = {"rounded", {DType::kBF16, 2, 64, 16}};
  CodecCalibrator calibrator(one.shape, 1);
  calibrator.Add(0, LikeKv(one.shape, 1));
  const auto tables = std::make_shared<const CodecTables>(calibrator.Build({.k = {16}, .v = {1}}));
  const auto codec = NewRoundedCodec(tables, 0.2f);
  PartsBytes raw = LikeKv(one.shape, 9);
  const uint16_t infinity = 0x7f80;
  std::memcpy(raw.data() + 5 * 128, &infinity, sizeof(infinity));  // token 5 of the first head of K
  const auto infinite = PartsOfFrame(FrameOf(codec.get(), one, raw, {.exact_front = 4}));
  ASSERT_TRUE(infinite.ok()) << infinite.status();
  EXPECT_EQ(infinite->k.escapes, 1u);
  EXPECT_EQ(infinite->v.escapes, 0u);
  EXPECT_GT(infinite->k.wire_bytes, infinite->v.wire_bytes);
  const auto finite =
      PartsOfFrame(FrameOf(codec.get(), one, LikeKv(one.shape, 9), {.exact_front = 4}));
  ASSERT_TRUE(finite.ok()) << finite.status();
  // The bits of K and V may share a byte, which K has.
  EXPECT_NEAR(static_cast<double>(finite->v.wire_bytes),
              static_cast<double>(infinite->v.wire_bytes), 1);
  EXPECT_LT(finite->k.wire_bytes, infinite->k.wire_bytes);
}

TEST(ExponentPartsTest, EscapesCountWhereTheyAre) {
  const PartsCase one = {"mask-rice", {DType::kBF16, 2, 64, 16}};
  for (const char* const codec_name : {"f3", "mask-rice"}) {
    const auto codec = CodecOf({codec_name, one.shape});
    PartsBytes raw = SameKAndV(one.shape, 10);
    const auto before = PartsOfFrame(FrameOf(codec.get(), one, raw));
    const uint16_t huge = 0x7f00;  // an exponent above the window of every channel
    std::memcpy(raw.data() + 3 * 128, &huge, sizeof(huge));
    std::memcpy(raw.data() + raw.size() - 256, &huge, sizeof(huge));
    std::memcpy(raw.data() + raw.size() - 128, &huge, sizeof(huge));
    const auto after = PartsOfFrame(FrameOf(codec.get(), one, raw));
    ASSERT_TRUE(before.ok() && after.ok()) << before.status() << after.status();
    EXPECT_EQ(after->k.escapes, before->k.escapes + 1) << codec_name;
    EXPECT_EQ(after->v.escapes, before->v.escapes + 2) << codec_name;
  }
}

}  // namespace
}  // namespace tandem::frame_parts_test
