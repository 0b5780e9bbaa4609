// Reservations of a decode engine: what they hold, who may claim them, when they lapse, and that no
// block is given back under a write.

#include <optional>
#include <utility>

#include "gtest/gtest.h"
#include "tests/support/decode_handoff_fixture.h"

namespace tandem {
namespace {

using absl::StatusCode;
using ReservationTest = DecodeHandoffTest;

TEST_F(ReservationTest, AReservationHoldsItsBlocks) {
  Start({.block_tokens = 8});
  EXPECT_EQ(reservation_.epoch, 7u);
  EXPECT_EQ(reservation_.lease, kLease);
  Settle();
  const EngineStats stats = (*engine_)->stats();
  EXPECT_EQ(stats.reservations, 1);
  EXPECT_EQ(stats.kv.free_blocks, stats.kv.total_blocks - 3);
  EXPECT_EQ(stats.scheduler.parked, 1);
  (*engine_)->Release(reservation_.id);
  ExpectReleased();
}

TEST_F(ReservationTest, ALapsedReservationGivesItsBlocksBack) {
  Start();
  EXPECT_TRUE(Land(ThePrefill().frames.front()).ok());
  clock_.Advance(kLease);
  ExpectReleased();
  EXPECT_EQ(Land(ThePrefill().frames.front()).code(), StatusCode::kNotFound);
  Decode();
  ExpectEnd(StatusCode::kNotFound);
}

TEST_F(ReservationTest, FramesRenewTheLease) {
  Start();
  clock_.Advance(kLease - std::chrono::seconds(1));
  EXPECT_TRUE(Land(ThePrefill().frames.front()).ok());
  clock_.Advance(kLease - std::chrono::seconds(1));
  Settle();
  EXPECT_EQ((*engine_)->stats().reservations, 1);
  LandAll();
  EXPECT_TRUE(CommitAll().ok());
  Decode();
  ExpectTheAnswer();
}

TEST_F(ReservationTest, CompleteKvThatNobodyClaimsLapsesToo) {
  Start();
  LandAll();
  EXPECT_TRUE(CommitAll().ok());
  clock_.Advance(kLease);
  ExpectReleased();
  Decode();
  ExpectEnd(StatusCode::kNotFound);
}

TEST_F(ReservationTest, AReleaseEndsTheRequestThatWaits) {
  Start();
  Decode();
  (*engine_)->Release(reservation_.id);
  ExpectEnd(StatusCode::kCancelled);
}

// The pool has room for one such sequence, so that its blocks would be handed out at once.
TEST_F(ReservationTest, NoBlockIsGivenBackUnderAWrite) {
  Start({.num_blocks = 4, .block_tokens = 8});
  const PostedFrame& frame = ThePrefill().frames.front();
  ASSERT_TRUE(Begin(frame).ok());
  (*engine_)->Release(reservation_.id);
  Settle();
  EXPECT_LT((*engine_)->stats().kv.free_blocks, 4);
  EXPECT_EQ(engine_->Reserve(kPromptTokens, kMaxTokens).status().code(),
            StatusCode::kResourceExhausted);
  receiver().Landed(HeaderOf(frame), absl::OkStatus());
  ExpectReleased();
  EXPECT_TRUE(engine_->Reserve(kPromptTokens, kMaxTokens).ok());
}

TEST_F(ReservationTest, ALapseUnderAWriteWaitsForItToo) {
  Start();
  const PostedFrame& frame = ThePrefill().frames.front();
  ASSERT_TRUE(Begin(frame).ok());
  clock_.Advance(kLease);
  Settle();
  const KvStats stats = (*engine_)->stats().kv;
  EXPECT_LT(stats.free_blocks, stats.total_blocks);
  Decode();
  EXPECT_EQ(recording_.AwaitFinish().status.code(), StatusCode::kNotFound);
  receiver().Landed(HeaderOf(frame), absl::UnavailableError("connection lost half-way"));
  ExpectReleased();
}

TEST_F(ReservationTest, NoRoomIsToldAtOnce) {
  Start({.num_blocks = 4, .block_tokens = 8});
  EXPECT_EQ(engine_->Reserve(kPromptTokens, kMaxTokens).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(engine_->Reserve(40, 10).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(engine_->Reserve(0, 10).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(engine_->Reserve(10, 0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(engine_->Reserve(250, 10).status().code(), StatusCode::kInvalidArgument);
  (*engine_)->Release(reservation_.id);
  ExpectReleased();
}

TEST_F(ReservationTest, AnotherLayoutIsRefused) {
  Start();
  std::optional<absl::Status> status;
  (*engine_)->Reserve({.prompt = {1, 2, 3}, .max_tokens = 8, .layout_fingerprint = 12345},
                      [&](absl::StatusOr<Reservation> answer) { status = answer.status(); });
  Settle();
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->code(), StatusCode::kFailedPrecondition);
}

TEST_F(ReservationTest, AClaimMustFitItsReservation) {
  Start();
  EngineRequest longer = TheRequest();
  ++longer.max_tokens;
  Decode(longer, reservation_.id);
  EXPECT_EQ(recording_.AwaitFinish().status.code(), StatusCode::kFailedPrecondition);
  Recording other;
  EngineRequest shorter = TheRequest();
  shorter.prompt.pop_back();
  (*engine_)->SubmitDecode({.request = shorter,
                            .reservation = reservation_.id,
                            .first_tokens = ThePrefill().first_tokens},
                           other.NewSink());
  EXPECT_EQ(other.AwaitFinish().status.code(), StatusCode::kFailedPrecondition);
  (*engine_)->Release(reservation_.id);
  ExpectReleased();
}

TEST_F(ReservationTest, AReservationIsClaimedOnce) {
  Start();
  Decode();
  Recording second;
  EngineRequest request = TheRequest();
  request.id = RequestId(2);
  (*engine_)->SubmitDecode({.request = request,
                            .reservation = reservation_.id,
                            .first_tokens = ThePrefill().first_tokens},
                           second.NewSink());
  EXPECT_EQ(second.AwaitFinish().status.code(), StatusCode::kFailedPrecondition);
  LandAll();
  EXPECT_TRUE(CommitAll().ok());
  ExpectTheAnswer();
}

}  // namespace
}  // namespace tandem
