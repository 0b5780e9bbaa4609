#include "transfer/wire/frame.h"

#include <array>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::frame_test {
namespace {

using ::testing::HasSubstr;

using HeaderArray = std::array<std::byte, kFrameHeaderBytes>;

std::string Hex(std::span<const std::byte> bytes) {
  std::string text;
  for (std::byte byte : bytes) text += fmt::format("{:02x}", std::to_integer<int>(byte));
  return text;
}

std::span<const std::byte> BytesOf(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Corrects the checksum after a change, as only a foreign sender would.
HeaderArray Resealed(HeaderArray bytes) {
  const uint64_t hash = Hash64(std::span(bytes).first<56>());
  for (int i = 0; i < 8; ++i) bytes[56 + i] = static_cast<std::byte>(hash >> (8 * i));
  return bytes;
}

HeaderArray With(HeaderArray bytes, size_t at, int value) {
  bytes[at] = static_cast<std::byte>(value);
  return Resealed(bytes);
}

FrameHeader HeaderOf() {
  const std::string_view payload = "The quick brown fox.";
  return {.type = FrameType::kData,
          .stream = 42,
          .epoch = 0x0123456789abcdef,
          .layer = 3,
          .block = 7,
          .payload_bytes = static_cast<uint32_t>(payload.size()),
          .payload_hash = Hash64(BytesOf(payload))};
}

// The worked example of docs/kv_wire_format.md. A few lines of Python (struct.pack and
// python-xxhash 4.1.0, xxh3_64_intdigest) give the same bytes.
TEST(FrameTest, GoldenBytes) {
  constexpr uint64_t kEpoch = 0x0123456789abcdef;
  EXPECT_EQ(
      Hex(EncodeFrameHeader({.type = FrameType::kHello, .stream = 0xfeedfacecafef00d, .block = 1})),
      "54444b31030005000df0fecacefaedfe00000000000000000000000001000000"
      "0000000000000000000000000000000000000000000000001f12b491f108662b");
  EXPECT_EQ(Hex(EncodeFrameHeader({.type = FrameType::kCredit, .frames = 16 << 20})),
            "54444b3103000600000000000000000000000000000000000000000000000000"
            "000000000000000000000000000000000000000100000000de4a5471634e60de");
  EXPECT_EQ(Hex(EncodeFrameHeader(HeaderOf())),
            "54444b31030001002a00000000000000efcdab89674523010300000007000000"
            "1400000000000000024679e8e7b8eb5a0000000000000000ebfe5c32cd281699");
  EXPECT_EQ(Hex(EncodeFrameHeader({.type = FrameType::kRenew, .stream = 42, .epoch = kEpoch})),
            "54444b31030007002a00000000000000efcdab89674523010000000000000000"
            "0000000000000000000000000000000000000000000000003ec04e277b45e270");
  EXPECT_EQ(Hex(EncodeFrameHeader({.type = FrameType::kCommit,
                                   .stream = 42,
                                   .epoch = kEpoch,
                                   .block = 1,
                                   .frames = 1,
                                   .sent_bytes = 20})),
            "54444b31030002002a00000000000000efcdab89674523010000000001000000"
            "0000000000000000140000000000000001000000000000009b3b70d8a9bf461a");
  EXPECT_EQ(Hex(EncodeFrameHeader({.type = FrameType::kResend,
                                   .stream = 42,
                                   .epoch = kEpoch,
                                   .layer = 3,
                                   .block = 7,
                                   .frames = 1})),
            "54444b31030008002a00000000000000efcdab89674523010300000007000000"
            "000000000000000000000000000000000100000000000000a3bebf204bbd6e2e");
  EXPECT_EQ(
      Hex(EncodeFrameHeader({.type = FrameType::kAck, .stream = 42, .epoch = kEpoch, .block = 2})),
      "54444b31030003002a00000000000000efcdab89674523010000000002000000"
      "0000000000000000000000000000000000000000000000006062fda0c8a23199");
  EXPECT_EQ(Hex(EncodeFrameHeader(
                {.type = FrameType::kReject, .code = 15, .stream = 42, .epoch = kEpoch})),
            "54444b310300040f2a00000000000000efcdab89674523010000000000000000"
            "00000000000000000000000000000000000000000000000050446e20fa298fd1");
}

TEST(FrameTest, EveryTypeComesBack) {
  const FrameHeader headers[] = {
      HeaderOf(),
      {.type = FrameType::kCommit,
       .stream = ~0ull,
       .epoch = 1,
       .block = 9,
       .frames = ~0ull,
       .sent_bytes = ~0ull},
      {.type = FrameType::kAck, .stream = 1, .epoch = ~0ull, .block = 9},
      {.type = FrameType::kHello, .stream = 8, .block = 1},
      {.type = FrameType::kCredit, .frames = ~0ull},
      {.type = FrameType::kRenew, .stream = 1, .epoch = 2},
      {.type = FrameType::kResend, .stream = 1, .epoch = 2, .layer = 3, .block = 4, .frames = 5},
      {.type = FrameType::kReference,
       .stream = 1,
       .epoch = 2,
       .layer = 3,
       .block = 4,
       .payload_bytes = 5,
       .payload_hash = ~0ull,
       .payload_handle = ~0ull},
      {.type = FrameType::kData,
       .stream = 1,
       .epoch = 2,
       .payload_bytes = 5,
       .kind = PayloadKind::kEncoded},
      {.type = FrameType::kReference,
       .stream = 1,
       .epoch = 2,
       .payload_bytes = 5,
       .kind = PayloadKind::kTables},
      {.type = FrameType::kAnnounce, .payload_bytes = kMaxPayloadBytes},
      {.type = FrameType::kReject, .code = 16, .stream = 9, .epoch = 2}};
  for (const FrameHeader& header : headers) {
    const auto parsed = ParseFrameHeader(EncodeFrameHeader(header));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, header);
  }
}

TEST(FrameTest, EveryFlippedBitIsNoticed) {
  const HeaderArray good = EncodeFrameHeader(HeaderOf());
  for (size_t bit = 0; bit < 8 * kFrameHeaderBytes; ++bit) {
    HeaderArray bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_EQ(ParseFrameHeader(bad).status().code(), absl::StatusCode::kDataLoss) << "bit " << bit;
  }
}

TEST(FrameTest, AnotherVersionIsADisagreement) {
  const auto status = ParseFrameHeader(With(EncodeFrameHeader(HeaderOf()), 4, 1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 1"));
}

TEST(FrameTest, WhatCannotBeIsRefused) {
  const auto code = [](HeaderArray bytes) { return ParseFrameHeader(bytes).status().code(); };
  const HeaderArray data = EncodeFrameHeader(HeaderOf());
  const HeaderArray ack = EncodeFrameHeader({.type = FrameType::kAck, .stream = 1});
  const HeaderArray reject =
      EncodeFrameHeader({.type = FrameType::kReject, .code = 3, .stream = 1});
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code(With(data, 6, 0)), kInvalid) << "type 0";
  EXPECT_EQ(code(With(data, 6, 11)), kInvalid) << "type 11";
  EXPECT_EQ(code(With(data, 7, 1)), kInvalid) << "data with a code";
  EXPECT_EQ(code(With(data, 32, 0)), kInvalid) << "data without payload";
  EXPECT_EQ(code(With(data, 35, 4)), kInvalid) << "payload over the limit";
  EXPECT_EQ(code(With(data, 37, 1)), kInvalid) << "reserved";
  EXPECT_EQ(code(With(data, 36, 1)), kInvalid) << "an encoded payload of version 3";
  EXPECT_EQ(code(With(data, 4, 4)), kInvalid) << "an extent as it is of version 4";
  EXPECT_EQ(code(With(With(data, 4, 4), 36, 3)), kInvalid) << "an unknown kind of payload";
  EXPECT_EQ(code(With(With(ack, 4, 4), 36, 1)), kInvalid) << "ack with a kind of payload";
  EXPECT_EQ(code(With(data, 48, 1)), kInvalid) << "data with a frame count";
  EXPECT_EQ(code(With(ack, 24, 1)), kInvalid) << "ack with a layer";
  EXPECT_EQ(code(With(ack, 40, 1)), kInvalid) << "ack with a hash";
  EXPECT_EQ(code(With(reject, 7, 0)), kInvalid) << "reject that says OK";
  EXPECT_EQ(code(With(reject, 7, 17)), kInvalid) << "reject with no status code";
  const HeaderArray hello = EncodeFrameHeader({.type = FrameType::kHello, .stream = 1, .block = 1});
  EXPECT_EQ(code(With(hello, 8, 0)), kInvalid) << "hello without a number";
  EXPECT_EQ(code(With(hello, 16, 1)), kInvalid) << "hello with an epoch";
  EXPECT_EQ(code(With(hello, 24, 1)), kInvalid) << "hello of a second connection";
  EXPECT_EQ(code(With(hello, 28, 0)), kInvalid) << "hello of no connection";
  EXPECT_EQ(code(With(hello, 28, 2)), kInvalid) << "hello of several connections";
  EXPECT_EQ(code(EncodeFrameHeader({.type = FrameType::kResend, .stream = 1})), kInvalid)
      << "resend of nothing";
  const HeaderArray announce =
      EncodeFrameHeader({.type = FrameType::kAnnounce, .payload_bytes = 1});
  EXPECT_EQ(code(With(announce, 8, 1)), kInvalid) << "announcement of a stream";
  EXPECT_EQ(code(With(announce, 32, 0)), kInvalid) << "announcement of nothing";
  EXPECT_EQ(code(With(announce, 40, 1)), kInvalid) << "announcement with a hash";
  EXPECT_EQ(code(With(EncodeFrameHeader({.type = FrameType::kCredit, .frames = 1}), 8, 1)),
            kInvalid)
      << "credit of a stream";
  FrameHeader largest = HeaderOf();
  largest.payload_bytes = kMaxPayloadBytes;
  EXPECT_EQ(code(EncodeFrameHeader(largest)), absl::StatusCode::kOk);
}

}  // namespace
}  // namespace tandem::frame_test
