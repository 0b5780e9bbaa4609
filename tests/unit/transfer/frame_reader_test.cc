#include "transfer/wire/frame_reader.h"

#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/transport_probe.h"

namespace tandem::frame_reader_test {
namespace {

using ::testing::ElementsAre;

// Notes what the reader tells, as text.
class HandlerProbe final : public FrameHandler {
 public:
  absl::Status prepare_answer;
  absl::Status control_answer;
  std::vector<std::string> calls;
  std::vector<std::byte> landing;

  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header) override {
    calls.push_back(fmt::format("prepare {}", header.block));
    if (!prepare_answer.ok()) return prepare_answer;
    landing.assign(header.payload_bytes, std::byte{0});
    return std::span<std::byte>(landing);
  }
  void Landed(const FrameHeader& header, const absl::Status& status) override {
    calls.push_back(
        fmt::format("landed {} {}", header.block, absl::StatusCodeToString(status.code())));
  }
  absl::Status Control(const FrameHeader& header) override {
    calls.push_back(fmt::format("control {}", static_cast<int>(header.type)));
    return control_answer;
  }
};

std::vector<std::byte> DataFrame(uint32_t block, const std::vector<std::byte>& payload) {
  const auto header = EncodeFrameHeader({.type = FrameType::kData,
                                         .stream = 1,
                                         .block = block,
                                         .payload_bytes = static_cast<uint32_t>(payload.size()),
                                         .payload_hash = Hash64(payload)});
  std::vector<std::byte> frame(header.begin(), header.end());
  frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}

void Append(std::vector<std::byte>& bytes, const std::vector<std::byte>& more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

class FrameReaderTest : public ::testing::Test {
 protected:
  FrameReaderTest() {
    Append(bytes_, DataFrame(0, payload_));
    const auto commit = EncodeFrameHeader({.type = FrameType::kCommit, .stream = 1, .frames = 1});
    bytes_.insert(bytes_.end(), commit.begin(), commit.end());
    Append(bytes_, DataFrame(1, PatternBytes(1, 2)));
  }

  const std::vector<std::byte> payload_ = PatternBytes(300, 1);
  std::vector<std::byte> bytes_;  // data, commit, data
  HandlerProbe handler_;
  FrameReader reader_{handler_};
};

TEST_F(FrameReaderTest, FramesAreFoundHoweverTheBytesArrive) {
  for (size_t piece = 1; piece <= bytes_.size(); ++piece) {
    handler_.calls.clear();
    for (size_t at = 0; at < bytes_.size(); at += piece) {
      const auto part = std::span(bytes_).subspan(at, std::min(piece, bytes_.size() - at));
      ASSERT_EQ(reader_.Feed(part), absl::OkStatus());
    }
    EXPECT_THAT(handler_.calls,
                ElementsAre("prepare 0", "landed 0 OK", "control 2", "prepare 1", "landed 1 OK"))
        << "pieces of " << piece;
    EXPECT_FALSE(reader_.mid_frame());
  }
}

TEST_F(FrameReaderTest, PayloadGoesStraightIntoItsPlace) {
  const auto frame = DataFrame(0, payload_);
  ASSERT_EQ(reader_.Feed(std::span(frame).first(kFrameHeaderBytes + 100)), absl::OkStatus());
  const auto targets = reader_.Targets();
  EXPECT_EQ(targets[0].data(), handler_.landing.data() + 100);
  EXPECT_EQ(targets[0].size(), 200u);
  EXPECT_EQ(targets[1].size(), kFrameHeaderBytes) << "the next header comes with the same read";
}

TEST_F(FrameReaderTest, WrongPayloadIsReportedAndTheNextFrameIsRead) {
  bytes_[kFrameHeaderBytes + 17] ^= std::byte{1};
  ASSERT_EQ(reader_.Feed(bytes_), absl::OkStatus());
  EXPECT_THAT(handler_.calls, ElementsAre("prepare 0", "landed 0 DATA_LOSS", "control 2",
                                          "prepare 1", "landed 1 OK"));
}

TEST_F(FrameReaderTest, RefusedPayloadIsDropped) {
  handler_.prepare_answer = ResourceExhausted("no");
  const auto large = PatternBytes(200000, 3);  // more than the reader drops at once
  std::vector<std::byte> bytes = DataFrame(5, large);
  Append(bytes, bytes_);
  ASSERT_EQ(reader_.Feed(bytes), absl::OkStatus());
  EXPECT_THAT(handler_.calls, ElementsAre("prepare 5", "prepare 0", "control 2", "prepare 1"));
}

TEST_F(FrameReaderTest, WhatIsNoFrameEndsIt) {
  EXPECT_EQ(reader_.Feed(PatternBytes(64, 4)).code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(handler_.calls, ElementsAre());
}

TEST_F(FrameReaderTest, HandlerCanEndIt) {
  handler_.control_answer = InvalidArgument("no commit is welcome here");
  EXPECT_EQ(reader_.Feed(bytes_).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(handler_.calls, ElementsAre("prepare 0", "landed 0 OK", "control 2"));
}

TEST_F(FrameReaderTest, StopReportsAPayloadThatIsHalfThere) {
  const absl::Status lost = Unavailable("lost");
  ASSERT_EQ(reader_.Feed(std::span(bytes_).first(30)), absl::OkStatus());
  EXPECT_TRUE(reader_.mid_frame());
  reader_.Stop(lost);
  EXPECT_THAT(handler_.calls, ElementsAre());
  ASSERT_EQ(reader_.Feed(std::span(bytes_).first(100)), absl::OkStatus());
  reader_.Stop(lost);
  EXPECT_THAT(handler_.calls, ElementsAre("prepare 0", "landed 0 UNAVAILABLE"));
  reader_.Stop(lost);
  EXPECT_EQ(handler_.calls.size(), 2u) << "once";
}

}  // namespace
}  // namespace tandem::frame_reader_test
