// Frames and payloads that the quantised codec does not take: damaged, shorter or longer ones, and such
// as Encode never writes.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kvstore/codec/quantised_layout.h"
#include "tests/unit/kvstore/codec/codec_data.h"
#include "tests/unit/kvstore/codec/quantised_extent.h"

namespace tandem::quantised_test::refusals_test {
namespace {

TEST_F(QuantisedTest, DamagedFramesAreRefused) {
  const ExtentShape shape = {DType::kBF16, 1, 72, 9};
  const auto codec = NewQuantisedCodec({5, 4});
  Bytes frame(MostFrameBytes(shape));
  frame.resize(
      EncodeFrame(codec.get(), shape, {.exact_front = 1}, LikeKv(shape, 2), frame).value_or(0));
  ASSERT_EQ(frame.at(4), std::byte{4}) << "not a quantised frame";
  Bytes back(shape.Bytes());
  ASSERT_TRUE(DecodeFrame(codec.get(), shape, 0, frame, back).ok());
  for (size_t size = 0; size < frame.size(); ++size) {
    EXPECT_FALSE(DecodeFrame(codec.get(), shape, 0, std::span(frame).first(size), back).ok());
  }
  for (size_t bit = 0; bit < 8 * frame.size(); ++bit) {
    Bytes damaged = frame;
    damaged[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_FALSE(DecodeFrame(codec.get(), shape, 0, damaged, back).ok()) << bit;
  }
}

// Payloads that no hash protects: nothing but sanitizers sees what is read beyond them.
TEST_F(QuantisedTest, ShorterAndLongerPayloadsAreRefused) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const ExtentShape shape = {dtype, 1, 72, 5};
    Bytes raw = LikeKv(shape, 3);
    const Bytes any = RandomBits(shape, 3);
    std::copy_n(any.begin(), raw.size() / 3, raw.begin());
    const Bytes payload = Encoded({6, 3}, shape, raw, {.exact_back = 1});
    ASSERT_TRUE(Decodes(shape, payload));
    for (size_t size = 0; size < payload.size(); ++size) {
      EXPECT_FALSE(
          Decodes(shape, Bytes(payload.begin(), payload.begin() + static_cast<long>(size))))
          << size;
    }
    Bytes longer = payload;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(Decodes(shape, longer));
    for (size_t bit = 0; bit < 8 * payload.size(); ++bit) {
      Bytes damaged = payload;
      damaged[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      Decodes(shape, damaged);
    }
  }
}

// Payloads of a token with one group of K and one of V, changed at one place.
class QuantisedPayloadTest : public testing::Test {
 protected:
  static constexpr ExtentShape kShape = {DType::kF32, 1, 64, 1};
  static constexpr size_t kScalesAt = kHeaderBytes;
  static constexpr size_t kMasksAt = kHeaderBytes + 4;

  // 5 bits each, so that the masks of plain codes are 5 * 8 bytes.
  static Bytes Payload(const std::vector<float>& values) {
    return Encoded({5, 5}, kShape, BytesOf(values));
  }
  static Bytes With(Bytes payload, size_t at, std::vector<int> bytes) {
    for (const int byte : bytes) payload.at(at++) = static_cast<std::byte>(byte);
    return payload;
  }
};

TEST_F(QuantisedPayloadTest, HeadersThatEncodeDoesNotWriteAreRefused) {
  const Bytes payload = Payload(Normal(128, 2));
  ASSERT_TRUE(Decodes(kShape, payload));
  EXPECT_FALSE(Decodes(kShape, With(payload, 0, {0}))) << "version";
  EXPECT_FALSE(Decodes(kShape, With(payload, 0, {2}))) << "version";
  EXPECT_FALSE(Decodes(kShape, With(payload, 1, {1}))) << "zero";
  for (const size_t side : {0, 1}) {
    EXPECT_FALSE(Decodes(kShape, With(payload, 2 + side, {2}))) << "bits";
    EXPECT_FALSE(Decodes(kShape, With(payload, 2 + side, {9}))) << "bits";
    EXPECT_FALSE(Decodes(kShape, With(payload, 4 + side, {1}))) << "low bits";
    EXPECT_FALSE(Decodes(kShape, With(payload, 4 + side, {4}))) << "low bits";
    EXPECT_FALSE(Decodes(kShape, With(payload, 4 + side, {6}))) << "low bits";
  }
  EXPECT_FALSE(Decodes(kShape, With(payload, 6, {2}))) << "exact tokens";
  EXPECT_FALSE(Decodes(kShape, With(payload, 6, {0xff, 0xff, 0xff, 0xff}))) << "exact tokens";
}

TEST_F(QuantisedPayloadTest, ScalesThatAreNoneAreRefused) {
  const Bytes payload = Payload(Normal(128, 2));
  EXPECT_TRUE(Decodes(kShape, With(payload, kScalesAt, {0xff, 0x7b}))) << "the largest";
  EXPECT_FALSE(Decodes(kShape, With(payload, kScalesAt, {0x01, 0x7c}))) << "NaN";
  EXPECT_FALSE(Decodes(kShape, With(payload, kScalesAt, {0x00, 0xbc}))) << "-1";
  EXPECT_FALSE(Decodes(kShape, With(payload, kScalesAt, {0x00, 0x7c}))) << "no exact group";
}

TEST_F(QuantisedPayloadTest, CodesOfGroupsThatHaveNoneAreRefused) {
  const Bytes zeros = Payload(std::vector<float>(128));
  ASSERT_TRUE(Decodes(kShape, zeros));
  EXPECT_FALSE(Decodes(kShape, With(zeros, kMasksAt, {1})));
  const Bytes payload = Payload(Normal(128, 2));
  EXPECT_FALSE(Decodes(kShape, With(payload, kScalesAt, {0, 0})));
}

// Of K and V alike, so that Encode packs them plainly: half of the codes are 15, half -15.
std::vector<float> LargeCodes() {
  std::vector<double> codes(64);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = i % 2 == 0 ? 15 : -15;
  std::vector<float> values;
  for (int side = 0; side < 2; ++side) {
    for (const double value : Rotated(codes)) values.push_back(static_cast<float>(value));
  }
  return values;
}

// A code of -16 would be of 5 bits, but Encode writes -15 to 15.
TEST_F(QuantisedPayloadTest, ACodeBelowTheLeastIsRefused) {
  const Bytes payload = Payload(LargeCodes());
  ASSERT_TRUE(Decodes(kShape, payload));
  ASSERT_EQ(payload.at(4), std::byte{5}) << "not packed plainly";
  EXPECT_FALSE(Decodes(kShape, With(payload, kMasksAt, {0xff}))) << "rank 31";

  const Bytes unary = Payload(Normal(128, 2));
  const auto low_bits = std::to_integer<size_t>(unary.at(4));
  ASSERT_LT(low_bits, 5u) << "packed plainly";
  size_t refused = 0;
  for (size_t lane = 0; lane < 64; ++lane) {
    Bytes changed = unary;
    for (size_t mask = 0; mask < low_bits; ++mask) {
      changed[kMasksAt + 8 * mask + lane / 8] |= static_cast<std::byte>(1 << lane % 8);
    }
    refused += Decodes(kShape, changed) ? 0 : 1;
  }
  EXPECT_GE(refused, 1u) << "a channel with the largest rest has rank 31";
  EXPECT_LT(refused, 32u) << "the others have one that is right";
}

// With one low bit fewer than all the masks are the same, so that nothing else shows it.
TEST_F(QuantisedPayloadTest, ThereIsOneWayToPackPlainly) {
  const Bytes payload = Payload(LargeCodes());
  ASSERT_EQ(payload.at(4), std::byte{5}) << "not packed plainly";
  EXPECT_FALSE(Decodes(kShape, With(payload, 4, {4})));
}

}  // namespace
}  // namespace tandem::quantised_test::refusals_test
