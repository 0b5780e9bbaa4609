#include "transfer/frame.h"

#include <array>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

using HeaderBytes = std::array<std::byte, kFrameHeaderBytes>;

std::string Hex(std::span<const std::byte> bytes) {
  std::string text;
  for (std::byte byte : bytes) text += fmt::format("{:02x}", std::to_integer<int>(byte));
  return text;
}

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Corrects the checksum after a change, as only a foreign sender would.
HeaderBytes Resealed(HeaderBytes bytes) {
  const uint64_t hash = Hash64(std::span(bytes).first<56>());
  for (int i = 0; i < 8; ++i) bytes[56 + i] = static_cast<std::byte>(hash >> (8 * i));
  return bytes;
}

HeaderBytes With(HeaderBytes bytes, size_t at, int value) {
  bytes[at] = static_cast<std::byte>(value);
  return Resealed(bytes);
}

FrameHeader DataHeader() {
  const std::string_view payload = "The quick brown fox.";
  return {.type = FrameType::kData,
          .stream = 42,
          .epoch = 0x0123456789abcdef,
          .layer = 3,
          .block = 7,
          .payload_bytes = static_cast<uint32_t>(payload.size()),
          .payload_hash = Hash64(Bytes(payload))};
}

// The worked example of docs/kv_wire_format.md. A few lines of Python (struct.pack and
// python-xxhash 4.1.0, xxh3_64_intdigest) give the same bytes.
TEST(FrameTest, GoldenBytes) {
  constexpr uint64_t kEpoch = 0x0123456789abcdef;
  EXPECT_EQ(
      Hex(EncodeFrameHeader({.type = FrameType::kHello, .stream = 0xfeedfacecafef00d, .block = 1})),
      "54444b31020005000df0fecacefaedfe00000000000000000000000001000000"
      "000000000000000000000000000000000000000000000000b550062bacb904e7");
  EXPECT_EQ(Hex(EncodeFrameHeader({.type = FrameType::kCredit, .frames = 16 << 20})),
            "54444b3102000600000000000000000000000000000000000000000000000000"
            "000000000000000000000000000000000000000100000000911ae8cecfe3341e");
  EXPECT_EQ(Hex(EncodeFrameHeader(DataHeader())),
            "54444b31020001002a00000000000000efcdab89674523010300000007000000"
            "1400000000000000024679e8e7b8eb5a000000000000000014472d1f0b91ecac");
  EXPECT_EQ(Hex(EncodeFrameHeader({.type = FrameType::kRenew, .stream = 42, .epoch = kEpoch})),
            "54444b31020007002a00000000000000efcdab89674523010000000000000000"
            "000000000000000000000000000000000000000000000000f175089f335a7763");
  EXPECT_EQ(Hex(EncodeFrameHeader({.type = FrameType::kCommit,
                                   .stream = 42,
                                   .epoch = kEpoch,
                                   .block = 1,
                                   .frames = 1,
                                   .sent_bytes = 20})),
            "54444b31020002002a00000000000000efcdab89674523010000000001000000"
            "000000000000000014000000000000000100000000000000a814c166e82631c1");
  EXPECT_EQ(Hex(EncodeFrameHeader({.type = FrameType::kResend,
                                   .stream = 42,
                                   .epoch = kEpoch,
                                   .layer = 3,
                                   .block = 7,
                                   .frames = 1})),
            "54444b31020008002a00000000000000efcdab89674523010300000007000000"
            "00000000000000000000000000000000010000000000000085e546841d39f4fa");
  EXPECT_EQ(
      Hex(EncodeFrameHeader({.type = FrameType::kAck, .stream = 42, .epoch = kEpoch, .block = 2})),
      "54444b31020003002a00000000000000efcdab89674523010000000002000000"
      "000000000000000000000000000000000000000000000000b1d2869956620ffb");
  EXPECT_EQ(Hex(EncodeFrameHeader(
                {.type = FrameType::kReject, .code = 15, .stream = 42, .epoch = kEpoch})),
            "54444b310200040f2a00000000000000efcdab89674523010000000000000000"
            "000000000000000000000000000000000000000000000000a4196c1d212f676c");
}

TEST(FrameTest, EveryTypeComesBack) {
  const FrameHeader headers[] = {
      DataHeader(),
      {.type = FrameType::kCommit,
       .stream = ~0ull,
       .epoch = 1,
       .block = 9,
       .frames = ~0ull,
       .sent_bytes = ~0ull},
      {.type = FrameType::kAck, .stream = 1, .epoch = ~0ull, .block = 9},
      {.type = FrameType::kHello, .stream = 8, .layer = 15, .block = 16},
      {.type = FrameType::kCredit, .frames = ~0ull},
      {.type = FrameType::kRenew, .stream = 1, .epoch = 2},
      {.type = FrameType::kResend, .stream = 1, .epoch = 2, .layer = 3, .block = 4, .frames = 5},
      {.type = FrameType::kReject, .code = 16, .stream = 9, .epoch = 2}};
  for (const FrameHeader& header : headers) {
    const auto parsed = ParseFrameHeader(EncodeFrameHeader(header));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, header);
  }
}

TEST(FrameTest, EveryFlippedBitIsNoticed) {
  const HeaderBytes good = EncodeFrameHeader(DataHeader());
  for (size_t bit = 0; bit < 8 * kFrameHeaderBytes; ++bit) {
    HeaderBytes bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_EQ(ParseFrameHeader(bad).status().code(), absl::StatusCode::kDataLoss) << "bit " << bit;
  }
}

TEST(FrameTest, AnotherVersionIsADisagreement) {
  const auto status = ParseFrameHeader(With(EncodeFrameHeader(DataHeader()), 4, 1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 1"));
}

TEST(FrameTest, WhatCannotBeIsRefused) {
  const auto code = [](HeaderBytes bytes) { return ParseFrameHeader(bytes).status().code(); };
  const HeaderBytes data = EncodeFrameHeader(DataHeader());
  const HeaderBytes ack = EncodeFrameHeader({.type = FrameType::kAck, .stream = 1});
  const HeaderBytes reject =
      EncodeFrameHeader({.type = FrameType::kReject, .code = 3, .stream = 1});
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code(With(data, 6, 0)), kInvalid) << "type 0";
  EXPECT_EQ(code(With(data, 6, 9)), kInvalid) << "type 9";
  EXPECT_EQ(code(With(data, 7, 1)), kInvalid) << "data with a code";
  EXPECT_EQ(code(With(data, 32, 0)), kInvalid) << "data without payload";
  EXPECT_EQ(code(With(data, 35, 4)), kInvalid) << "payload over the limit";
  EXPECT_EQ(code(With(data, 36, 1)), kInvalid) << "reserved";
  EXPECT_EQ(code(With(data, 48, 1)), kInvalid) << "data with a frame count";
  EXPECT_EQ(code(With(ack, 24, 1)), kInvalid) << "ack with a layer";
  EXPECT_EQ(code(With(ack, 40, 1)), kInvalid) << "ack with a hash";
  EXPECT_EQ(code(With(reject, 7, 0)), kInvalid) << "reject that says OK";
  EXPECT_EQ(code(With(reject, 7, 17)), kInvalid) << "reject with no status code";
  const HeaderBytes hello =
      EncodeFrameHeader({.type = FrameType::kHello, .stream = 1, .layer = 1, .block = 2});
  EXPECT_EQ(code(With(hello, 8, 0)), kInvalid) << "hello of no group";
  EXPECT_EQ(code(With(hello, 16, 1)), kInvalid) << "hello with an epoch";
  EXPECT_EQ(code(With(hello, 24, 2)), kInvalid) << "hello of connection 2 of 2";
  EXPECT_EQ(code(With(hello, 28, 17)), kInvalid) << "hello of too many connections";
  EXPECT_EQ(code(EncodeFrameHeader({.type = FrameType::kResend, .stream = 1})), kInvalid)
      << "resend of nothing";
  FrameHeader largest = DataHeader();
  largest.payload_bytes = kMaxPayloadBytes;
  EXPECT_EQ(code(EncodeFrameHeader(largest)), absl::StatusCode::kOk);
}

}  // namespace
}  // namespace tandem
