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
  EXPECT_EQ(Hex(EncodeFrameHeader(DataHeader())),
            "54444b31010001002a00000000000000efcdab89674523010300000007000000"
            "1400000000000000024679e8e7b8eb5a0000000000000000b0274995fb379b11");
  EXPECT_EQ(
      Hex(EncodeFrameHeader(
          {.type = FrameType::kCommit, .stream = 42, .epoch = 0x0123456789abcdef, .frames = 1})),
      "54444b31010002002a00000000000000efcdab89674523010000000000000000"
      "0000000000000000000000000000000001000000000000002eb4b2a4e6714592");
  EXPECT_EQ(
      Hex(EncodeFrameHeader(
          {.type = FrameType::kReject, .code = 15, .stream = 42, .epoch = 0x0123456789abcdef})),
      "54444b310100040f2a00000000000000efcdab89674523010000000000000000"
      "0000000000000000000000000000000000000000000000000f755d072cad38ec");
}

TEST(FrameTest, EveryTypeComesBack) {
  const FrameHeader headers[] = {
      DataHeader(),
      {.type = FrameType::kCommit, .stream = ~0ull, .epoch = 1, .frames = ~0ull},
      {.type = FrameType::kAck, .stream = 1, .epoch = ~0ull},
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
  const auto status = ParseFrameHeader(With(EncodeFrameHeader(DataHeader()), 4, 2)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 2"));
}

TEST(FrameTest, WhatCannotBeIsRefused) {
  const auto code = [](HeaderBytes bytes) { return ParseFrameHeader(bytes).status().code(); };
  const HeaderBytes data = EncodeFrameHeader(DataHeader());
  const HeaderBytes ack = EncodeFrameHeader({.type = FrameType::kAck, .stream = 1});
  const HeaderBytes reject =
      EncodeFrameHeader({.type = FrameType::kReject, .code = 3, .stream = 1});
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code(With(data, 6, 0)), kInvalid) << "type 0";
  EXPECT_EQ(code(With(data, 6, 5)), kInvalid) << "type 5";
  EXPECT_EQ(code(With(data, 7, 1)), kInvalid) << "data with a code";
  EXPECT_EQ(code(With(data, 32, 0)), kInvalid) << "data without payload";
  EXPECT_EQ(code(With(data, 35, 4)), kInvalid) << "payload over the limit";
  EXPECT_EQ(code(With(data, 36, 1)), kInvalid) << "reserved";
  EXPECT_EQ(code(With(data, 48, 1)), kInvalid) << "data with a frame count";
  EXPECT_EQ(code(With(ack, 24, 1)), kInvalid) << "ack with a layer";
  EXPECT_EQ(code(With(ack, 40, 1)), kInvalid) << "ack with a hash";
  EXPECT_EQ(code(With(reject, 7, 0)), kInvalid) << "reject that says OK";
  EXPECT_EQ(code(With(reject, 7, 17)), kInvalid) << "reject with no status code";
  FrameHeader largest = DataHeader();
  largest.payload_bytes = kMaxPayloadBytes;
  EXPECT_EQ(code(EncodeFrameHeader(largest)), absl::StatusCode::kOk);
}

}  // namespace
}  // namespace tandem
