// Frames and payloads that the codec which rounds does not take: damaged, shorter or longer ones, and
// such as Encode never writes.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "kvstore/codec/bit_writer.h"
#include "kvstore/codec/rounded_layout.h"
#include "kvstore/codec/rounded_rows.h"
#include "tests/unit/kvstore/codec/rounded_extent.h"

namespace tandem::rounded_test::refusals_test {
namespace {

TEST_F(RoundedTest, DamagedFramesAreRefused) {
  const ExtentShape shape = {DType::kBF16, 1, 72, 9};
  const auto codec = CodecFor(shape, 0.2f);
  Bytes frame(MostFrameBytes(shape));
  frame.resize(
      EncodeFrame(codec.get(), shape, {.exact_front = 1}, LikeKv(shape, 2), frame).value_or(0));
  ASSERT_EQ(frame.at(4), std::byte{5}) << "not a rounded frame";
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
TEST_F(RoundedTest, ShorterAndLongerPayloadsAreRefused) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const ExtentShape shape = {dtype, 1, 72, 5};
    const auto codec = CodecFor(shape, 0.1f);
    Bytes raw = LikeKv(shape, 3);
    const Bytes any = RandomBits(shape, 3);
    std::copy_n(any.begin(), raw.size() / 3, raw.begin());
    const Bytes payload = Encoded(*codec, shape, raw, {.exact_front = 1});
    ASSERT_TRUE(Decodes(*codec, shape, payload));
    for (size_t size = 0; size < payload.size(); ++size) {
      EXPECT_FALSE(
          Decodes(*codec, shape, Bytes(payload.begin(), payload.begin() + static_cast<long>(size))))
          << size;
    }
    Bytes longer = payload;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(Decodes(*codec, shape, longer));
    for (size_t bit = 0; bit < 8 * payload.size(); ++bit) {
      Bytes damaged = payload;
      damaged[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      Decodes(*codec, shape, damaged);
    }
  }
}

class RoundedPayloadTest : public RoundedTest {
 protected:
  static constexpr ExtentShape kShape = {DType::kF32, 1, 64, 2};
  static constexpr size_t kFlagsAt = sizeof(codec::RoundedHeader);
  static constexpr size_t kStreamAt = kFlagsAt + 1 + sizeof(uint32_t);

  bool Decodes(const Bytes& payload) const {
    return rounded_test::Decodes(*codec_, kShape, payload);
  }
  static Bytes With(Bytes payload, size_t at, uint8_t value) {
    payload.at(at) = std::byte{value};
    return payload;
  }

  const std::unique_ptr<KvCodec> codec_ = CodecFor(kShape, 0.2f);
  const Bytes payload_ = Encoded(*codec_, kShape, LikeKv(kShape, 5));
};

TEST_F(RoundedPayloadTest, HeadersThatEncodeNeverWrites) {
  ASSERT_TRUE(Decodes(payload_));
  EXPECT_FALSE(Decodes(With(payload_, 0, 2))) << "version";
  EXPECT_FALSE(Decodes(With(payload_, 1, 1)));
  EXPECT_FALSE(Decodes(With(payload_, 2, 3))) << "more exact tokens than there are";
  const auto key_bits = std::to_integer<uint8_t>(payload_.at(4));
  EXPECT_FALSE(Decodes(With(payload_, 4, static_cast<uint8_t>(key_bits + 1))));
  EXPECT_FALSE(Decodes(With(payload_, 7, 0x7f))) << "more bits of K than the payload has";
}

// A flag of a row that is not there, and one that lets too few bytes be there for the row.
TEST_F(RoundedPayloadTest, FlagsThatEncodeNeverWrites) {
  for (uint8_t bit = 0; bit < 8; ++bit) {
    EXPECT_FALSE(Decodes(With(payload_, kFlagsAt, static_cast<uint8_t>(1u << bit)))) << int{bit};
  }
}

// The payload of one token whose first channel of K has this rest, and all others 0. With a step of 1.4
// spreads no channel has low bits. Unless it `ends`, the bit that says so is missing.
Bytes PayloadWithRest(int rest, bool ends) {
  Bytes payload(256);
  const size_t stream_at = sizeof(codec::RoundedHeader) + 1;
  codec::BitWriter writer({payload.begin() + stream_at, payload.end()});
  for (int least = 1; least <= rest + (ends ? 1 : 0); ++least) {
    writer.PutBits(least <= rest ? 1 : 0, least == 1 ? 8 : 1);
  }
  const codec::RoundedHeader header = {.key_bits = static_cast<uint32_t>(writer.bits_written())};
  writer.PutBits(0, 8);  // V
  std::memcpy(payload.data(), &header, sizeof(header));
  payload.resize(stream_at + writer.Finish());
  return payload;
}
TEST_F(RoundedTest, ARestBeyondTheLargestIsRefused) {
  const ExtentShape shape = {DType::kF32, 1, 8, 1};
  const auto codec = NewRoundedCodec(std::make_shared<const CodecTables>(PlainTables()), 1.4f);
  constexpr int kMost = codec::RoundedRow::kMostRest;
  EXPECT_TRUE(Decodes(*codec, shape, PayloadWithRest(kMost, true)));
  EXPECT_FALSE(Decodes(*codec, shape, PayloadWithRest(kMost + 1, true)));
  EXPECT_FALSE(Decodes(*codec, shape, PayloadWithRest(kMost + 1, false)));
}

TEST_F(RoundedPayloadTest, ARestWithoutEndIsRefused) {
  Bytes payload = payload_;
  std::fill(payload.begin() + kStreamAt, payload.end(), std::byte{0xff});
  payload.resize(payload.size() + 4096, std::byte{0xff});
  const auto stream = static_cast<uint32_t>(payload.size() - kStreamAt);
  std::memcpy(payload.data() + kFlagsAt + 1, &stream, sizeof(stream));
  EXPECT_FALSE(Decodes(payload));
}

}  // namespace
}  // namespace tandem::rounded_test::refusals_test
