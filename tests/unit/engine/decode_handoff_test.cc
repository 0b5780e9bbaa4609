// The receiving half of a hand-off: how requests end when KV comes whole, broken, late or never.

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/decode_handoff_fixture.h"

namespace tandem::decode_handoff_test {
namespace {

using absl::StatusCode;

TEST_F(DecodeHandoffTest, DecodesWhenTheKvCameBeforeTheClaim) {
  Start();
  LandAll();
  EXPECT_TRUE(CommitAll().ok());
  Decode();
  ExpectTheAnswer();
}

TEST_F(DecodeHandoffTest, DecodesWhenTheClaimCameBeforeTheKv) {
  Start();
  Decode();
  Settle();
  EXPECT_FALSE(recording_.finished());
  clock_.Advance(std::chrono::milliseconds(5));
  LandAll();
  EXPECT_TRUE(CommitAll().ok());
  ExpectTheAnswer();
  EXPECT_EQ(recording_.AwaitFinish().stages.wait_kv, std::chrono::milliseconds(5));
  EXPECT_EQ(recording_.AwaitFinish().kv.hidden_bytes, 0u);
}

// What the prefill hid of a transfer.
TEST_F(DecodeHandoffTest, TellsHowMuchHadLandedWhenTheRequestCame) {
  Start();
  const std::vector<RecordedFrame>& frames = ThePrefill().frames;
  const size_t landed = frames.size() / 3;
  for (size_t i = 0; i < landed; ++i) ASSERT_TRUE(Land(frames[i]).ok());
  Decode();
  Settle();
  LandAll();
  EXPECT_TRUE(CommitAll().ok());
  ExpectTheAnswer();
  const auto all = static_cast<uint64_t>(kPromptTokens * engine_->layout().BytesPerToken());
  EXPECT_EQ(recording_.AwaitFinish().kv.hidden_bytes, all * landed / frames.size());
  EXPECT_EQ(recording_.AwaitFinish().kv.raw_bytes, all);
}

TEST_F(DecodeHandoffTest, FramesMayComeTwiceAndInAnyOrder) {
  Start();
  LandAll();
  std::vector<RecordedFrame> again = ThePrefill().frames;
  std::reverse(again.begin(), again.end());
  for (const RecordedFrame& frame : again) EXPECT_TRUE(Land(frame).ok());
  EXPECT_TRUE(CommitAll().ok());
  EXPECT_EQ(Land(again.front()).code(), StatusCode::kAlreadyExists) << "after the commit";
  Decode();
  ExpectTheAnswer();
}

TEST_F(DecodeHandoffTest, AMissingFrameIsAskedFor) {
  Start();
  Decode();
  const RecordedFrame& lost = ThePrefill().frames.front();
  for (size_t i = 1; i < ThePrefill().frames.size(); ++i) {
    EXPECT_TRUE(Land(ThePrefill().frames[i]).ok());
  }
  EXPECT_EQ(Missing(), (std::vector<MissingExtent>{{.layer = lost.layer, .block = lost.block}}));
  Settle();
  EXPECT_FALSE(recording_.finished()) << "decoded from KV that is not whole";
  EXPECT_TRUE(Land(lost).ok());
  EXPECT_TRUE(CommitAll().ok());
  ExpectTheAnswer();
}

TEST_F(DecodeHandoffTest, AnotherNumberOfFramesIsDataLoss) {
  Start();
  Decode();
  LandAll();
  EXPECT_EQ(Commit(ThePrefill().frames.size() - 1).status.code(), StatusCode::kDataLoss);
  ExpectEnd(StatusCode::kDataLoss);
}

TEST_F(DecodeHandoffTest, ACorruptFrameComesAgain) {
  Start();
  Decode();
  LandAll();
  const RecordedFrame& frame = ThePrefill().frames.front();
  const auto place = receiver().Prepare(HeaderOf(frame));
  ASSERT_TRUE(place.ok());
  std::fill(place->begin(), place->end(), std::byte{0x55});
  receiver().Landed(HeaderOf(frame), absl::DataLossError("checksum"));
  EXPECT_EQ(Missing(), (std::vector<MissingExtent>{{.layer = frame.layer, .block = frame.block}}));
  EXPECT_TRUE(Land(frame).ok());
  EXPECT_TRUE(CommitAll().ok());
  ExpectTheAnswer();
}

TEST_F(DecodeHandoffTest, ALostConnectionLosesItsFrameAlone) {
  Start();
  const RecordedFrame& frame = ThePrefill().frames.front();
  ASSERT_TRUE(Begin(frame).ok());
  receiver().Landed(HeaderOf(frame), absl::UnavailableError("connection lost half-way"));
  Settle();
  Decode();
  LandAll();
  EXPECT_TRUE(CommitAll().ok());
  ExpectTheAnswer();
}

TEST_F(DecodeHandoffTest, WhatBrokeBeforeTheClaimIsToldAtTheClaim) {
  Start();
  EXPECT_EQ(Commit(1).status.code(), StatusCode::kDataLoss);
  Settle();
  Decode();
  ExpectEnd(StatusCode::kDataLoss);
}

TEST_F(DecodeHandoffTest, ALostAcknowledgementIsGivenAgain) {
  Start();
  LandAll();
  EXPECT_TRUE(CommitAll().ok());
  // The sender opens its stream again, before and after the request has taken the KV over.
  EXPECT_TRUE(Renew().ok());
  EXPECT_EQ(Land(ThePrefill().frames.front()).code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(CommitAll().ok());
  Decode();
  ExpectTheAnswer();
  EXPECT_TRUE(Renew().ok());
  EXPECT_EQ(Land(ThePrefill().frames.front()).code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(CommitAll().ok());
  EXPECT_EQ((*engine_)->stats().handoff_counts.received, 1u);
}

TEST_F(DecodeHandoffTest, StrangersAreRefused) {
  Start();
  const Reservation ours = reservation_;
  reservation_.epoch = 6;
  EXPECT_EQ(Land(ThePrefill().frames.front()).code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(CommitAll().code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(Renew().code(), StatusCode::kPermissionDenied);
  reservation_ = ours;
  reservation_.id = ReservationId(ours.id.value() + 1);
  EXPECT_EQ(Land(ThePrefill().frames.front()).code(), StatusCode::kPermissionDenied);
  reservation_ = ours;
  (*engine_)->Release(reservation_.id);
  ExpectReleased();
  EXPECT_EQ(Land(ThePrefill().frames.front()).code(), StatusCode::kNotFound);
  EXPECT_EQ(Renew().code(), StatusCode::kNotFound);
  EXPECT_EQ(CommitAll().code(), StatusCode::kNotFound);
}

TEST_F(DecodeHandoffTest, AClaimWhoseKvStopsComingIsUnavailable) {
  Start();
  Decode();
  EXPECT_TRUE(Land(ThePrefill().frames.front()).ok());
  Settle();
  clock_.Advance(kLease);
  Nudge();
  ExpectEnd(StatusCode::kUnavailable);
}

TEST_F(DecodeHandoffTest, TheDeadlineOfAClaimHolds) {
  Start();
  EngineRequest request = TheRequest();
  request.deadline = clock_.Now() + std::chrono::seconds(2);
  Decode(request, reservation_.id);
  Settle();
  clock_.Advance(std::chrono::seconds(2));
  Nudge();
  ExpectEnd(StatusCode::kDeadlineExceeded);
}

TEST_F(DecodeHandoffTest, TheDeadlineHoldsWhileDecoding) {
  Start();
  LandAll();
  EXPECT_TRUE(CommitAll().ok());
  engine_->gate().Allow(2);
  EngineRequest request = TheRequest();
  request.deadline = clock_.Now() + std::chrono::seconds(2);
  Decode(request, reservation_.id);
  engine_->gate().AwaitHeld();
  clock_.Advance(std::chrono::seconds(2));
  engine_->gate().Open();
  EXPECT_EQ(recording_.AwaitFinish().status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(recording_.token_ids().size(), 3u);
  ExpectReleased();
}

TEST_F(DecodeHandoffTest, ACancelWhileWaitingForKv) {
  Start();
  Decode();
  EXPECT_TRUE(Land(ThePrefill().frames.front()).ok());
  (*engine_)->Cancel(RequestId(1), absl::OkStatus());
  ExpectEnd(StatusCode::kCancelled);
}

TEST_F(DecodeHandoffTest, ACancelWhileDecoding) {
  Start();
  LandAll();
  EXPECT_TRUE(CommitAll().ok());
  engine_->gate().Allow(2);
  Decode();
  engine_->gate().AwaitHeld();
  (*engine_)->Cancel(RequestId(1), absl::OkStatus());
  engine_->gate().Open();
  EXPECT_EQ(recording_.AwaitFinish().status.code(), StatusCode::kCancelled);
  ExpectReleased();
}

TEST_F(DecodeHandoffTest, AShutdownUnderAWrite) {
  Start();
  Decode();
  const RecordedFrame& frame = ThePrefill().frames.front();
  ASSERT_TRUE(Begin(frame).ok());
  (*engine_)->Shutdown(TimePoint::min());
  EXPECT_EQ(recording_.AwaitFinish().status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(engine_->AtRest());
  EXPECT_EQ(Land(ThePrefill().frames.back()).code(), StatusCode::kUnavailable);
  receiver().Landed(HeaderOf(frame), absl::OkStatus());
  EXPECT_EQ(engine_->Reserve(1, 1).status().code(), StatusCode::kUnavailable);
}

TEST_F(DecodeHandoffTest, AFirstTokenThatEndsTheRequestNeedsNoKv) {
  Start();
  EngineRequest request = TheRequest();
  request.stop_token_ids = {ThePrefill().first_token};
  Decode(request, reservation_.id);
  ExpectEnd(StatusCode::kOk);
  EXPECT_EQ(recording_.AwaitFinish().reason, FinishReason::kStop);
  EXPECT_TRUE(recording_.token_ids().empty());
}

TEST_F(DecodeHandoffTest, ADrainingEngineTakesTheClaimsThatItReservedFor) {
  Start();
  Decode();
  LandAll();
  EXPECT_TRUE(CommitAll().ok());
  (*engine_)->Shutdown(kNoDeadline);
  EXPECT_TRUE(recording_.finished());
  EXPECT_TRUE(recording_.AwaitFinish().status.ok());
  EXPECT_TRUE(engine_->AtRest());
}

}  // namespace
}  // namespace tandem::decode_handoff_test
