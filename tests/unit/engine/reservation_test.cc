// Reservations of a decode engine: what they hold, who may claim them, when they lapse, and that no
// block is given back under a write.

#include <optional>
#include <string>
#include <utility>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/decode_handoff_fixture.h"
#include "tests/support/wait_limit.h"

namespace tandem::reservation_test {
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
  EXPECT_EQ((*engine_)->stats().handoff_counts.lapsed, 1u);
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
  const RecordedFrame& frame = ThePrefill().frames.front();
  ASSERT_TRUE(Begin(frame).ok());
  (*engine_)->Release(reservation_.id);
  absl::Notification answered;
  (*engine_)->Reserve(engine_->ReservationFor(TheRequest()),
                      [&](const absl::StatusOr<Reservation>& next) {
                        EXPECT_TRUE(next.ok()) << next.status();
                        (*engine_)->Release(next->id);
                        answered.Notify();
                      });
  Settle();
  EXPECT_LT((*engine_)->stats().kv.free_blocks, 4);
  EXPECT_EQ((*engine_)->stats().waiting_reservations, 1);
  EXPECT_FALSE(answered.HasBeenNotified());
  receiver().Landed(HeaderOf(frame), absl::OkStatus());
  Await(answered);
  ExpectReleased();
}

TEST_F(ReservationTest, ALapseUnderAWriteWaitsForItToo) {
  Start();
  const RecordedFrame& frame = ThePrefill().frames.front();
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

// A prompt that ends inside a block of the cache: that block is not shared, so it is no cost.
TEST_F(ReservationTest, WhatFillsThePoolIsPromisedBesideACachedPrefix) {
  Start({.num_blocks = 4, .block_tokens = 8});
  LandAll();
  ASSERT_TRUE(CommitAll().ok());
  Decode();
  ExpectTheAnswer();
  EngineRequest request = TheRequest();
  request.prompt.resize(12);
  request.max_tokens = 4 * 8 + 1 - 12;
  ReserveRequest reservation = engine_->ReservationFor(request);
  reservation.when_full = WhenFull::kRefuse;
  absl::Notification answered;
  (*engine_)->Reserve(std::move(reservation), [&](const absl::StatusOr<Reservation>& next) {
    EXPECT_TRUE(next.ok()) << next.status();
    if (next.ok()) {
      EXPECT_EQ(next->cached_tokens, 8);
      (*engine_)->Release(next->id);
    }
    answered.Notify();
  });
  Await(answered);
  ExpectReleased();
}

TEST_F(ReservationTest, WhatCouldNeverFitIsToldAtOnce) {
  Start({.num_blocks = 4, .block_tokens = 8});
  EXPECT_EQ(engine_->Reserve(40, 10).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(engine_->Reserve(0, 10).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(engine_->Reserve(10, 0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(engine_->Reserve(250, 10).status().code(), StatusCode::kInvalidArgument);
  (*engine_)->Release(reservation_.id);
  ExpectReleased();
}

TEST_F(ReservationTest, AnotherModelOrALayoutThatDoesNotConvertIsRefused) {
  Start();
  const auto refused = [&](auto change, const char* first, const char* second) {
    ReserveRequest request = engine_->ReservationFor(TheRequest());
    change(request);
    std::optional<absl::Status> status;
    (*engine_)->Reserve(
        request, [&](const absl::StatusOr<Reservation>& answer) { status = answer.status(); });
    Settle();
    ASSERT_TRUE(status.has_value());
    EXPECT_EQ(status->code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status->message()), testing::HasSubstr(first));
    EXPECT_THAT(std::string(status->message()), testing::HasSubstr(second));
  };
  refused([](ReserveRequest& r) { r.model_fingerprint = 0xab; }, "00000000000000ab",
          "0000000000000001");
  refused([](ReserveRequest& r) { r.layout.dtype = DType::kF32; }, "dtype=f32", "dtype=bf16");
  refused([](ReserveRequest& r) { ++r.layout.num_kv_heads; }, "num_kv_heads=", "num_kv_heads=");
}

TEST_F(ReservationTest, RenewalsKeepTheLease) {
  Start();
  for (int i = 0; i < 5; ++i) {
    clock_.Advance(kLease - std::chrono::seconds(1));
    EXPECT_TRUE(Renew().ok());
    Settle();
    EXPECT_EQ((*engine_)->stats().reservations, 1);
  }
  LandAll();
  EXPECT_TRUE(CommitAll().ok());
  Decode();
  ExpectTheAnswer();
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

TEST_F(ReservationTest, AClaimWithAnotherCacheSaltIsRefused) {
  Start();
  EngineRequest salted = TheRequest();
  salted.cache_salt = "another tenant";
  Decode(salted, reservation_.id);
  EXPECT_EQ(recording_.AwaitFinish().status.code(), StatusCode::kFailedPrecondition);
  (*engine_)->Release(reservation_.id);
  ExpectReleased();
}

// The prompt ends inside a cached block that a running request holds. The reservation cannot share
// that block, so it needs one more than a full pool has.
TEST_F(ReservationTest, AFullPoolRefusesAPromptThatEndsInsideABlockInUse) {
  Start({.num_blocks = 4, .block_tokens = 8});
  LandAll();
  ASSERT_TRUE(CommitAll().ok());
  engine_->gate().Allow(5);
  Decode();
  engine_->gate().AwaitHeld();
  EngineRequest request = TheRequest();
  request.prompt.resize(12);
  request.max_tokens = 1;
  ReserveRequest reservation = engine_->ReservationFor(request);
  reservation.when_full = WhenFull::kRefuse;
  absl::Notification answered;
  (*engine_)->Reserve(std::move(reservation), [&](const absl::StatusOr<Reservation>& next) {
    EXPECT_EQ(next.status().code(), StatusCode::kResourceExhausted) << next.status();
    answered.Notify();
  });
  engine_->gate().Allow(1);
  Await(answered);
  engine_->gate().Open();
  ExpectTheAnswer();
}

}  // namespace
}  // namespace tandem::reservation_test
