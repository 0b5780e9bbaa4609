// The receiving half of a hand-off: reservations, what may land in them, and how requests end when
// KV comes whole, broken, late or never.

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "tests/support/recording_sink.h"
#include "tests/support/scripted_transport.h"
#include "tests/support/test_engine.h"

namespace tandem {
namespace {

using absl::StatusCode;

constexpr int32_t kVocabSize = 288;
constexpr int32_t kPromptTokens = 20;
constexpr int32_t kMaxTokens = 8;
constexpr Duration kLease = std::chrono::seconds(10);
constexpr uint64_t kNobody = 1u << 30;

// The KV of one prompt with its first token, as a prefill engine made it, and the whole answer.
struct Prefilled {
  std::vector<PostedFrame> frames;
  int32_t first_token = 0;
  std::vector<int32_t> answer;
};

EngineRequest TheRequest() {
  return Greedy(1, RandomPrompt(1, kPromptTokens, kVocabSize), kMaxTokens);
}

const Prefilled& ThePrefill() {
  static const Prefilled prefilled = [] {
    Prefilled result;
    TestEngine prefill({.role = Role::kPrefill});
    auto transport = std::make_unique<ScriptedTransport>();
    ScriptedTransport* const wire = transport.get();
    prefill.Connect(std::move(transport));
    Recording first;
    prefill->SubmitPrefill(TheRequest(), {.reservation = ReservationId(1)}, first.NewSink());
    wire->AwaitCommit(1);
    result.frames = wire->frames();
    result.first_token = first.token_ids().front();
    wire->End(1, absl::OkStatus());
    EXPECT_TRUE(first.AwaitFinish().status.ok());

    TestEngine unified({});
    Recording whole;
    unified->Submit(TheRequest(), whole.NewSink());
    EXPECT_TRUE(whole.AwaitFinish().status.ok());
    result.answer = whole.token_ids();
    return result;
  }();
  return prefilled;
}

class DecodeHandoffTest : public testing::Test {
 protected:
  void Start(TestEngineSetup setup = {}) {
    setup.role = Role::kDecode;
    setup.clock = &clock_;
    setup.reservation_lease = kLease;
    engine_ = std::make_unique<TestEngine>(setup);
    const auto reservation = engine_->Reserve(kPromptTokens, kMaxTokens);
    ASSERT_TRUE(reservation.ok()) << reservation.status();
    reservation_ = *reservation;
  }

  FrameReceiver& receiver() { return *(*engine_)->frame_receiver(); }

  // What a transport's thread does.
  FrameHeader HeaderOf(const PostedFrame& frame) const {
    return {.type = FrameType::kData,
            .stream = reservation_.id.value(),
            .epoch = reservation_.epoch,
            .layer = frame.layer,
            .block = frame.block,
            .payload_bytes = static_cast<uint32_t>(frame.payload.size())};
  }
  absl::Status Begin(const PostedFrame& frame) {
    return receiver().Prepare(HeaderOf(frame)).status();
  }
  absl::Status Land(const PostedFrame& frame) {
    const auto place = receiver().Prepare(HeaderOf(frame));
    if (!place.ok()) return place.status();
    std::copy(frame.payload.begin(), frame.payload.end(), place->begin());
    receiver().Landed(HeaderOf(frame), absl::OkStatus());
    return absl::OkStatus();
  }
  void LandAll() {
    for (const PostedFrame& frame : ThePrefill().frames) EXPECT_TRUE(Land(frame).ok());
  }
  absl::Status Commit(uint64_t frames) {
    return receiver().Commit({.type = FrameType::kCommit,
                              .stream = reservation_.id.value(),
                              .epoch = reservation_.epoch,
                              .frames = frames});
  }
  absl::Status CommitAll() { return Commit(ThePrefill().frames.size()); }

  void Decode(EngineRequest request, ReservationId reservation) {
    (*engine_)->SubmitDecode({.request = std::move(request),
                              .reservation = reservation,
                              .first_token = ThePrefill().first_token},
                             recording_.NewSink());
  }
  void Decode() { Decode(TheRequest(), reservation_.id); }

  // The engine thread has seen all that went before, and looked at its clock.
  void Settle() { engine_->Settle(); }
  void Nudge() { (*engine_)->Cancel(RequestId(kNobody), absl::OkStatus()); }

  void ExpectEnd(StatusCode code) {
    EXPECT_EQ(recording_.AwaitFinish().status.code(), code) << recording_.AwaitFinish().status;
    EXPECT_EQ(recording_.num_finishes(), 1);
    Settle();
    EXPECT_TRUE(engine_->AtRest());
    if (code == StatusCode::kOk) return;
    EXPECT_TRUE(recording_.token_ids().empty()) << "decoded from KV that did not arrive";
  }
  void ExpectTheAnswer() {
    ExpectEnd(StatusCode::kOk);
    std::vector<int32_t> answer = {ThePrefill().first_token};
    const std::vector<int32_t> rest = recording_.token_ids();
    answer.insert(answer.end(), rest.begin(), rest.end());
    EXPECT_EQ(answer, ThePrefill().answer);
  }
  void ExpectReleased() {
    Settle();
    EXPECT_TRUE(engine_->AtRest());
  }

  FakeClock clock_;
  Recording recording_;
  std::unique_ptr<TestEngine> engine_;
  Reservation reservation_;
};

TEST_F(DecodeHandoffTest, AReservationHoldsItsBlocks) {
  Start({.block_tokens = 8});
  EXPECT_EQ(reservation_.epoch, 7u);
  EXPECT_EQ(reservation_.lease, kLease);
  Settle();
  const EngineStats stats = (*engine_)->stats();
  EXPECT_EQ(stats.reservations, 1);
  EXPECT_EQ(stats.free_blocks, stats.total_blocks - 3);
  EXPECT_EQ(stats.scheduler.promised_blocks, 4);
  (*engine_)->Release(reservation_.id);
  ExpectReleased();
}

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
}

TEST_F(DecodeHandoffTest, FramesMayComeTwiceAndInAnyOrder) {
  Start();
  LandAll();
  std::vector<PostedFrame> again = ThePrefill().frames;
  std::reverse(again.begin(), again.end());
  for (const PostedFrame& frame : again) EXPECT_TRUE(Land(frame).ok());
  EXPECT_TRUE(CommitAll().ok());
  EXPECT_EQ(Land(again.front()).code(), StatusCode::kFailedPrecondition) << "after the commit";
  Decode();
  ExpectTheAnswer();
}

TEST_F(DecodeHandoffTest, AMissingFrameIsDataLoss) {
  Start();
  Decode();
  for (size_t i = 1; i < ThePrefill().frames.size(); ++i) {
    EXPECT_TRUE(Land(ThePrefill().frames[i]).ok());
  }
  EXPECT_EQ(CommitAll().code(), StatusCode::kDataLoss);
  ExpectEnd(StatusCode::kDataLoss);
}

TEST_F(DecodeHandoffTest, ACorruptFrameIsDataLoss) {
  Start();
  Decode();
  const PostedFrame& frame = ThePrefill().frames.front();
  ASSERT_TRUE(Begin(frame).ok());
  receiver().Landed(HeaderOf(frame), absl::DataLossError("checksum"));
  ExpectEnd(StatusCode::kDataLoss);
}

TEST_F(DecodeHandoffTest, WhatBrokeBeforeTheClaimIsToldAtTheClaim) {
  Start();
  const PostedFrame& frame = ThePrefill().frames.front();
  ASSERT_TRUE(Begin(frame).ok());
  receiver().Landed(HeaderOf(frame), absl::UnavailableError("connection lost half-way"));
  Settle();
  Decode();
  ExpectEnd(StatusCode::kUnavailable);
}

TEST_F(DecodeHandoffTest, FramesForAnotherEpochAreRefused) {
  Start();
  reservation_.epoch = 6;
  EXPECT_EQ(Land(ThePrefill().frames.front()).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(CommitAll().code(), StatusCode::kFailedPrecondition);
  (*engine_)->Release(reservation_.id);
  ExpectReleased();
}

TEST_F(DecodeHandoffTest, ALapsedReservationGivesItsBlocksBack) {
  Start();
  EXPECT_TRUE(Land(ThePrefill().frames.front()).ok());
  clock_.Advance(kLease);
  ExpectReleased();
  EXPECT_EQ(Land(ThePrefill().frames.front()).code(), StatusCode::kNotFound);
  Decode();
  ExpectEnd(StatusCode::kNotFound);
}

TEST_F(DecodeHandoffTest, FramesRenewTheLease) {
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

TEST_F(DecodeHandoffTest, CompleteKvThatNobodyClaimsLapsesToo) {
  Start();
  LandAll();
  EXPECT_TRUE(CommitAll().ok());
  clock_.Advance(kLease);
  ExpectReleased();
  Decode();
  ExpectEnd(StatusCode::kNotFound);
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

TEST_F(DecodeHandoffTest, AReleaseEndsTheRequestThatWaits) {
  Start();
  Decode();
  (*engine_)->Release(reservation_.id);
  ExpectEnd(StatusCode::kCancelled);
}

// The pool has room for one such sequence, so that its blocks would be handed out at once.
TEST_F(DecodeHandoffTest, NoBlockIsGivenBackUnderAWrite) {
  Start({.num_blocks = 4, .block_tokens = 8});
  const PostedFrame& frame = ThePrefill().frames.front();
  ASSERT_TRUE(Begin(frame).ok());
  (*engine_)->Release(reservation_.id);
  Settle();
  EXPECT_LT((*engine_)->stats().free_blocks, 4);
  EXPECT_EQ(engine_->Reserve(kPromptTokens, kMaxTokens).status().code(),
            StatusCode::kResourceExhausted);
  receiver().Landed(HeaderOf(frame), absl::OkStatus());
  ExpectReleased();
  EXPECT_TRUE(engine_->Reserve(kPromptTokens, kMaxTokens).ok());
}

TEST_F(DecodeHandoffTest, ALapseUnderAWriteWaitsForItToo) {
  Start();
  const PostedFrame& frame = ThePrefill().frames.front();
  ASSERT_TRUE(Begin(frame).ok());
  clock_.Advance(kLease);
  Settle();
  EXPECT_LT((*engine_)->stats().free_blocks, (*engine_)->stats().total_blocks);
  Decode();
  EXPECT_EQ(recording_.AwaitFinish().status.code(), StatusCode::kNotFound);
  receiver().Landed(HeaderOf(frame), absl::UnavailableError("connection lost half-way"));
  ExpectReleased();
}

TEST_F(DecodeHandoffTest, AShutdownUnderAWrite) {
  Start();
  Decode();
  const PostedFrame& frame = ThePrefill().frames.front();
  ASSERT_TRUE(Begin(frame).ok());
  (*engine_)->Shutdown(TimePoint::min());
  EXPECT_EQ(recording_.AwaitFinish().status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(engine_->AtRest());
  EXPECT_EQ(Land(ThePrefill().frames.back()).code(), StatusCode::kUnavailable);
  receiver().Landed(HeaderOf(frame), absl::OkStatus());
  EXPECT_EQ(engine_->Reserve(1, 1).status().code(), StatusCode::kUnavailable);
}

TEST_F(DecodeHandoffTest, NoRoomIsToldAtOnce) {
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

TEST_F(DecodeHandoffTest, AnotherLayoutIsRefused) {
  Start();
  std::optional<absl::Status> status;
  (*engine_)->Reserve({.prompt_tokens = 8, .max_tokens = 8, .layout_fingerprint = 12345},
                      [&](absl::StatusOr<Reservation> answer) { status = answer.status(); });
  Settle();
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->code(), StatusCode::kFailedPrecondition);
}

TEST_F(DecodeHandoffTest, AClaimMustFitItsReservation) {
  Start();
  EngineRequest longer = TheRequest();
  ++longer.max_tokens;
  Decode(longer, reservation_.id);
  EXPECT_EQ(recording_.AwaitFinish().status.code(), StatusCode::kFailedPrecondition);
  Recording other;
  EngineRequest shorter = TheRequest();
  shorter.prompt.pop_back();
  (*engine_)->SubmitDecode({.request = shorter, .reservation = reservation_.id}, other.NewSink());
  EXPECT_EQ(other.AwaitFinish().status.code(), StatusCode::kFailedPrecondition);
  (*engine_)->Release(reservation_.id);
  ExpectReleased();
}

TEST_F(DecodeHandoffTest, AReservationIsClaimedOnce) {
  Start();
  Decode();
  Recording second;
  EngineRequest request = TheRequest();
  request.id = RequestId(2);
  (*engine_)->SubmitDecode({.request = request, .reservation = reservation_.id}, second.NewSink());
  EXPECT_EQ(second.AwaitFinish().status.code(), StatusCode::kFailedPrecondition);
  LandAll();
  EXPECT_TRUE(CommitAll().ok());
  ExpectTheAnswer();
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
}  // namespace tandem
