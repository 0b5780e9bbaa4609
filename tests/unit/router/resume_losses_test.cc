// A request whose workers are lost continues elsewhere, after the tokens that its client has.

#include "tests/support/resume_fixture.h"

namespace tandem::resume_losses_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LossTest : public ResumeFixture {};

TEST_F(LossTest, DecodeLostWhileDecoding) {
  Join("d1", kDecodeRole);
  SubmitAndHandOver();
  Say("decode d0", {11});
  clock_.Advance(milliseconds(2500));
  LoseCall("decode d0");
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  EXPECT_THAT(workers_.released, ElementsAre("d0#5"));
  const uint64_t first_id = workers_.streams[0]->sequence.request_id();
  Reserved(6);
  EXPECT_NE(workers_.streams.back()->sequence.request_id(), first_id)
      << "a worker may still know the first attempt";
  Say("prefill p0", {10});
  EXPECT_THAT(stream_.tokens, ElementsAre(10, 11)) << "10 was sent before";
  EXPECT_THAT(SoFar(), ElementsAre(10, 11));
  clock_.Advance(milliseconds(7));
  Say("decode d1", {12});
  Finish("prefill p0", kHandedOff);
  Say("decode d1", {13});
  Finish("decode d1", kLength);
  ExpectTheAnswer(1);
  EXPECT_EQ(stream_.finishes[0].decode_worker(), "d1");
  const v1::ResumeUse use = router_.Status().resumes();
  EXPECT_EQ(use.lost(), 1u);
  EXPECT_EQ(use.migrated(), 0u);
  EXPECT_DOUBLE_EQ(use.p50_ms(), 7);
  EXPECT_DOUBLE_EQ(use.max_ms(), 7);
  EXPECT_DOUBLE_EQ(use.waited().max_ms(), 2507) << "since 11 was sent";
  EXPECT_EQ(Causes(), "connection 1");
}

TEST_F(LossTest, DecodeLostBeforeItsFirstEvent) {
  Join("d1", kDecodeRole);
  SubmitAndPrefill();
  LoseCall("decode d0");
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1")) << "the prefill is begun anew";
  ContinueAt("p0", "d1", 6, {11, 12, 13});
  EXPECT_THAT(SoFar(), ElementsAre(10));
  ExpectTheAnswer(1);
}

TEST_F(LossTest, DecodeLostWhilePrefilling) {
  Join("d1", kDecodeRole);
  Submit(Ask());
  clock_.Advance(milliseconds(3));
  Reserved(5);
  const TimePoint reserved = clock_.Now();
  LetLapseAllBut({"p0", "d1"});
  const Duration lost_after = clock_.Now() - reserved;
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  ContinueAt("p0", "d1", 6, {11, 12, 13});
  EXPECT_THAT(workers_.so_far, IsEmpty()) << "the client had no token when it began";
  ExpectTheAnswer(1);
  const v1::Stages& stages = stream_.finishes[0].stages();
  EXPECT_DOUBLE_EQ(stages.reserve_ms(), 3);
  EXPECT_GT(stages.earlier_attempts_ms(), 4000) << "until d0 was lost";
  EXPECT_LE(stages.earlier_attempts_ms(), ToMilliseconds(lost_after));
  EXPECT_EQ(Causes(), "lease 1");
}

// The oldest request gets the room that there is.
TEST_F(LossTest, RequestsOfALostWorkerContinueInTheOrderInWhichTheyCame) {
  std::vector<RecordingStream> streams(8);
  for (int32_t i = 0; i < 8; ++i) {
    v1::GenerateRequest request = Ask();
    request.mutable_token_ids()->set_ids(0, 100 + i);
    ASSERT_TRUE(router_.Submit(request, kNoDeadline, streams[i]).ok());
    loop_.RunReady();
  }
  Join("d1", kDecodeRole);
  workers_.reservations.clear();
  LetLapseAllBut({"p0", "d1"});
  std::vector<int32_t> order;
  for (const auto& call : workers_.reservations) {
    EXPECT_EQ(call->name, "reserve d1");
    order.push_back(call->request.prompt(0));
  }
  EXPECT_THAT(order, ElementsAre(100, 101, 102, 103, 104, 105, 106, 107));
}

// The router was stopped for longer than a lease and reads the heartbeats of that time later.
TEST_F(LossTest, ARouterThatWasStalledLosesNoWorker) {
  SubmitAndHandOver();
  for (int i = 0; i < 2; ++i) {
    clock_.Advance(seconds(30));
    loop_.RunReady();
    EXPECT_THAT(workers_.Open(), ElementsAre("decode d0"));
    Beat("p0");
    Beat("d0");
  }
  clock_.Advance(seconds(30));
  loop_.RunReady();
  Pass(seconds(6));  // now it runs, and no heartbeat arrives
  EXPECT_THAT(workers_.Open(), IsEmpty());
  EXPECT_TRUE(cluster_.View()->workers.empty());
  EXPECT_EQ(Causes(), "lease 1");
}

TEST_F(LossTest, DecodeLostWhileReserving) {
  Join("d1", kDecodeRole);
  Submit(Ask());
  RefuseReservation(Unavailable("Connection refused"), kNetwork);
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  ContinueAt("p0", "d1", 6, {11, 12, 13});
  ExpectTheAnswer(1);
}

// The process may be frozen while its connections stand, so no call reports the loss.
TEST_F(LossTest, AWorkerWhoseNameAnotherProcessTookIsLostImmediately) {
  SubmitAndHandOver();
  Say("decode d0", {11});
  clock_.Advance(seconds(2));
  Join("d0", kDecodeRole, 2);
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d0"));
  EXPECT_EQ(workers_.reservations.back()->request.epoch(), 2u);
  clock_.Advance(milliseconds(7));
  ContinueAt("p0", "d0", 6, {12, 13});
  ExpectTheAnswer(1);
  EXPECT_EQ(Causes(), "lease 1");
  EXPECT_DOUBLE_EQ(router_.Status().resumes().max_ms(), 7);
}

TEST_F(LossTest, PrefillReplacedWhilePrefilling) {
  Submit(Ask());
  clock_.Advance(milliseconds(100));
  Reserved(5);
  Join("p0", kPrefillRole, 2);
  EXPECT_THAT(workers_.released, ElementsAre("d0#5"));
  clock_.Advance(milliseconds(7));
  ContinueAt("p0", "d0", 6, {11, 12, 13});
  ExpectTheAnswer(1);
  EXPECT_DOUBLE_EQ(router_.Status().resumes().max_ms(), 7);
  EXPECT_DOUBLE_EQ(router_.Status().resumes().waited().max_ms(), 2108)
      << "since it arrived; the name changed hands after two heartbeats";
}

// The prefill worker is called only once blocks are reserved, so no call reports its loss.
TEST_F(LossTest, PrefillLostWhileReserving) {
  Join("p1", kPrefillRole);
  Submit(Ask());
  LetLapseAllBut({"p1", "d0"});
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d0"));
  ContinueAt("p1", "d0", 6, {11, 12, 13});
  ExpectTheAnswer(1);
  EXPECT_EQ(stream_.finishes[0].prefill_worker(), "p1");
}

// It still holds the blocks: computing the prompt elsewhere would be in vain.
TEST_F(LossTest, ThePrefillWorkerThatHasThePromptSendsItsKvAgain) {
  Join("p1", kPrefillRole);
  Join("d1", kDecodeRole);
  Join("u0", kUnifiedRole);
  v1::GenerateRequest request = Ask(v1::ROUTE_AUTO);
  cluster_.Charge({"u0", 1}, {.sequences = 1});  // so that auto disaggregates
  Submit(request);
  Reserved(5);
  Say("prefill p0", {10});
  Finish("prefill p0", kHandedOff);
  cluster_.Charge({"p0", 1}, {.sequences = 50, .prompt_tokens = 5000});
  cluster_.Discharge({"u0", 1}, {.sequences = 1});
  LoseCall("decode d0");
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  ContinueAt("p0", "d1", 6, {11, 12, 13});
  cluster_.Discharge({"p0", 1}, {.sequences = 50, .prompt_tokens = 5000});
  ExpectTheAnswer(1);
}

TEST_F(LossTest, PrefillLostBeforeTheFirstToken) {
  Join("p1", kPrefillRole);
  Submit(Ask());
  Reserved(5);
  LoseCall("prefill p0");
  EXPECT_THAT(workers_.released, ElementsAre("d0#5"));
  ContinueAt("p1", "d0", 6, {11, 12, 13});
  ExpectTheAnswer(1);
}

TEST_F(LossTest, PrefillLostBeforeItsKvArrived) {
  Join("p1", kPrefillRole);
  SubmitAndPrefill();
  LoseCall("prefill p0");
  EXPECT_THAT(workers_.released, ElementsAre("d0#5"));
  ContinueAt("p1", "d0", 6, {11, 12, 13});
  EXPECT_THAT(SoFar(), ElementsAre(10));
  ExpectTheAnswer(1);
}

TEST_F(LossTest, UnifiedLostContinuesAfterTheEmittedTokens) {
  Join("u0", kUnifiedRole);
  Join("u1", kUnifiedRole);
  Submit(Ask(v1::ROUTE_UNIFIED));
  EXPECT_THAT(workers_.so_far, IsEmpty());
  Say("generate u0", {10});
  Say("generate u0", {11, 12});
  LoseCall("generate u0");
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u1"));
  EXPECT_THAT(SoFar(), ElementsAre(10, 11, 12));
  Say("generate u1", {13});
  Finish("generate u1", kLength);
  ExpectTheAnswer(1);
}

TEST_F(LossTest, FromUnifiedToDisaggregatedAndBack) {
  Join("u0", kUnifiedRole);
  Submit(Ask(v1::ROUTE_AUTO));
  Say("generate u0", {10, 11});
  LoseCall("generate u0");
  Reserved(5);
  Say("prefill p0", {10});
  EXPECT_THAT(SoFar(), ElementsAre(10, 11));
  Say("decode d0", {12});
  Beat("u0");  // it lives again
  LoseCall("decode d0");
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0"));
  EXPECT_THAT(SoFar(), ElementsAre(10, 11, 12));
  Say("generate u0", {13});
  Finish("generate u0", kLength);
  ExpectTheAnswer(2);
}

TEST_F(LossTest, ARefusedHandOffIsALoss) {
  for (const absl::Status& status :
       {DataLoss("an extent is missing"), FailedPrecondition("epoch 3")}) {
    SCOPED_TRACE(status.ToString());
    stream_ = {};
    SubmitAndPrefill();
    End("prefill p0", status, kWorker);
    EXPECT_THAT(workers_.Open(), IsEmpty()) << "neither is tried again before it reports";
    Beat("p0");
    EXPECT_THAT(workers_.Open(), IsEmpty());
    Beat("d0");
    EXPECT_THAT(workers_.Open(), ElementsAre("reserve d0"));
    ContinueAt("p0", "d0", 6, {11, 12, 13});
    ExpectTheAnswer(1);
  }
  EXPECT_EQ(Causes(), "hand_off 2");
}

TEST_F(LossTest, ALapsedReservationIsNoFaultOfTheDecodeWorker) {
  SubmitAndPrefill();
  End("prefill p0", NotFound("it lapsed"), kWorker);
  EXPECT_THAT(workers_.Open(), IsEmpty());
  Beat("p0");
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d0"));
  ContinueAt("p0", "d0", 6, {11, 12, 13});
  ExpectTheAnswer(1);
}

TEST_F(LossTest, AnAnswerOfTheWorkerItselfRaisesNoSuspicion) {
  SubmitAndPrefill();
  End("decode d0", NotFound("reservation 5 has lapsed"), kWorker);
  EXPECT_TRUE(cluster_.View()->HasUsable(kDecodeRole));
  EXPECT_FALSE(stream_.end.has_value());
}

TEST_F(LossTest, ARestartedWorkerTakesOver) {
  SubmitAndHandOver();
  Say("decode d0", {11, 12});
  LoseCall("decode d0");
  EXPECT_THAT(workers_.Open(), IsEmpty());
  clock_.Advance(seconds(2));
  Join("d0", kDecodeRole, 2);
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d0"));
  ContinueAt("p0", "d0", 6, {13});
  ExpectTheAnswer(1);
  EXPECT_DOUBLE_EQ(router_.Status().resumes().max_ms(), 2000);
}

TEST_F(LossTest, WithoutAnotherWorkerTheRequestFailsAfterTheWait) {
  SubmitAndPrefill();
  LoseCall("decode d0");
  for (int i = 0; i < 3; ++i) {  // whoever lives keeps its lease
    Pass(seconds(3));
    Beat("p0");
  }
  EXPECT_FALSE(stream_.end.has_value());
  clock_.Advance(seconds(1));
  loop_.RunReady();
  ExpectFailed(absl::StatusCode::kUnavailable, "decode worker d0 (d0:1) was lost");
  EXPECT_EQ(router_.Status().resumes().gave_up(), 1u);
}

TEST_F(LossTest, ANewRequestWaitsForAWorkerThatWasLostRecently) {
  cluster_.Suspect({"d0", 1});
  Submit(Ask());
  EXPECT_FALSE(stream_.end.has_value());
  EXPECT_THAT(workers_.Open(), IsEmpty());
  clock_.Advance(seconds(2));
  Join("d0", kDecodeRole, 2);
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d0"));
  ContinueAt("p0", "d0", 6, {11, 12, 13});
  ExpectTheAnswer(0);
}

TEST_F(LossTest, ANewRequestDoesNotWaitForAWorkerThatWasLostLongAgo) {
  cluster_.Suspect({"d0", 1});
  for (int i = 0; i < 7; ++i) {  // its lease lapses in the second turn
    Pass(seconds(3));
    Beat("p0");
  }
  Submit(Ask());
  ExpectFailed(absl::StatusCode::kUnavailable, "decode worker");
}

TEST_F(LossTest, TheDeadlineBoundsTheWait) {
  Submit(Ask(), clock_.Now() + seconds(2));
  Reserved();
  Say("prefill p0", {10});
  LoseCall("decode d0");
  clock_.Advance(seconds(2));
  loop_.RunReady();
  ExpectFailed(absl::StatusCode::kDeadlineExceeded, "lost: d0");
}

TEST_F(LossTest, CancelWhileWaitingForAWorker) {
  const RequestId id = Submit(Ask());
  Reserved();
  Say("prefill p0", {10});
  LoseCall("decode d0");
  router_.Cancel(id, Cancelled("the client went away"));
  loop_.RunReady();
  ExpectFailed(absl::StatusCode::kCancelled, "client");
  Join("d1", kDecodeRole);
  EXPECT_THAT(workers_.Open(), IsEmpty());
}

TEST_F(LossTest, TheBudgetIsThreeLosses) {
  for (const char* name : {"u0", "u1", "u2", "u3", "u4"}) Join(name, kUnifiedRole);
  Submit(Ask(v1::ROUTE_UNIFIED));
  for (const std::string name : {"u0", "u1", "u2"}) {
    const auto token = static_cast<int32_t>(10 + stream_.tokens.size());
    Say("generate " + name, {token});
    LoseCall("generate " + name);
    EXPECT_FALSE(stream_.end.has_value());
  }
  LoseCall("generate u3");
  ExpectFailed(absl::StatusCode::kUnavailable, "lost: u0, u1, u2, u3");
  EXPECT_THAT(stream_.tokens, ElementsAre(10, 11, 12));
  EXPECT_EQ(router_.Status().resumes().lost(), 3u);
  EXPECT_EQ(router_.Status().resumes().gave_up(), 1u);
}

TEST_F(LossTest, AWorkerThatMakesNoProgressIsLostUntilItDoes) {
  Join("u0", kUnifiedRole);
  Join("u1", kUnifiedRole);
  Submit(Ask(v1::ROUTE_UNIFIED));
  Say("generate u0", {10, 11});
  Beat("u0", "no step for 4 s");
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u1"));
  Beat("u1", "no step for 4 s");
  EXPECT_THAT(workers_.Open(), IsEmpty());
  Beat("u0");
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0"));
  Say("generate u0", {12, 13});
  Finish("generate u0", kLength);
  ExpectTheAnswer(2);
  EXPECT_EQ(Causes(), "no_progress 2");
}

TEST_F(LossTest, ATokenThatDiffersFromTheEmittedOneIsOurBug) {
  Join("d1", kDecodeRole);
  SubmitAndPrefill();
  LoseCall("decode d0");
  Reserved(6);
  Say("prefill p0", {77});
  EXPECT_THAT(stream_.tokens, ElementsAre(10));
  ExpectFailed(absl::StatusCode::kInternal, "prefill worker p0: token 0 of choice 0 is 77 now");
}

TEST_F(LossTest, NoRoomAfterALossWaitsForTheNextReport) {
  Join("d1", kDecodeRole);
  SubmitAndPrefill();
  LoseCall("decode d0");
  RefuseReservation(ResourceExhausted("full"));
  EXPECT_THAT(workers_.Open(), IsEmpty());
  EXPECT_FALSE(stream_.end.has_value());
  Beat("d1");
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  ContinueAt("p0", "d1", 6, {11, 12, 13});
  ExpectTheAnswer(1);
}

TEST_F(LossTest, AWorkerLostAfterTheLastTokenNeedsNoReplacement) {
  SubmitAndHandOver();
  Say("decode d0", {11, 12, 13});
  LoseCall("decode d0");
  ExpectTheAnswer(0);
}

TEST_F(LossTest, EachChoiceContinuesWhereItWas) {
  Join("d1", kDecodeRole);
  v1::GenerateRequest request = Ask();
  request.set_n(4);
  request.mutable_sampling()->set_logprobs(0);
  Submit(request);
  Reserved(5);
  for (int32_t i = 0; i < 3; ++i) Say("prefill p0", {10 * i}, i, -1.0f);
  Say("prefill p0", {999}, 3, -1.0f);  // EOS
  EndChoice("prefill p0", 3, kStop);
  Say("decode d0", {1}, 0, -1.0f);
  Say("decode d0", {11, 12, 13}, 1, -1.0f);
  EndChoice("decode d0", 1, kLength);
  LoseCall("decode d0");
  Reserved(6);
  for (int32_t i = 0; i < 3; ++i) Say("prefill p0", {10 * i}, i, -1.0f);
  Say("prefill p0", {999}, 3, -1.0f);
  ASSERT_EQ(workers_.so_far.size(), 4u) << "before the prefill worker said how choice 3 ended";
  EndChoice("prefill p0", 3, kStop);
  Close("prefill p0", kHandedOff);
  EXPECT_THAT(SoFar(0), ElementsAre(0, 1));
  EXPECT_THAT(SoFar(2), ElementsAre(20));
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(workers_.so_far[i].ended(), i % 2 == 1) << i;
  EXPECT_DOUBLE_EQ(workers_.so_far[0].cumulative_logprob(), -2);
  Say("decode d1", {2, 3}, 0, -1.0f);
  EndChoice("decode d1", 0, kLength);
  Say("decode d1", {21, 22, 23}, 2, -1.0f);
  EndChoice("decode d1", 2, kLength);
  Close("decode d1", kLength);
  ASSERT_TRUE(stream_.end.has_value() && stream_.end->ok());
  EXPECT_THAT(stream_.ids[0], ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(stream_.ids[1], ElementsAre(10, 11, 12, 13));
  EXPECT_THAT(stream_.ids[2], ElementsAre(20, 21, 22, 23));
  EXPECT_THAT(stream_.ids[3], ElementsAre(999));
  EXPECT_DOUBLE_EQ(stream_.FinishOf(0).cumulative_logprob(), -4);
  EXPECT_EQ(stream_.finishes.size(), 4u);
  ExpectNothingLeft();
}

TEST_F(LossTest, AChoiceThatAStopStringEndedStaysEnded) {
  Join("u0", kUnifiedRole);
  Join("u1", kUnifiedRole);
  v1::GenerateRequest request = Ask(v1::ROUTE_UNIFIED);
  request.set_n(2);
  request.set_max_tokens(6);
  request.add_stop("b");
  Submit(request);
  const int32_t b = tokenizer_.Encode("b", {})->back();
  Say("generate u0", {b}, 0);
  Say("generate u0", {10}, 1);
  EXPECT_THAT(workers_.ended_choices, ElementsAre("u0#0"));
  LoseCall("generate u0");
  ASSERT_EQ(workers_.so_far.size(), 2u);
  EXPECT_TRUE(workers_.so_far[0].ended());
  EXPECT_FALSE(workers_.so_far[1].ended());
}

TEST_F(LossTest, ABeamSearchBeginsAnew) {
  Join("u0", kUnifiedRole);
  Join("u1", kUnifiedRole);
  v1::GenerateRequest request = Ask(v1::ROUTE_UNIFIED);
  request.mutable_beam_search()->set_beam_width(2);
  request.set_n(2);
  Submit(request);
  Say("generate u0", {10, 11}, 0);
  EndChoice("generate u0", 0, kStop);
  LoseCall("generate u0");
  EXPECT_THAT(workers_.so_far, IsEmpty());
  Say("generate u1", {10, 11}, 0);
  EndChoice("generate u1", 0, kStop);
  Say("generate u1", {20, 21, 22, 23}, 1);
  EndChoice("generate u1", 1, kLength);
  Close("generate u1", kLength);
  ASSERT_TRUE(stream_.end.has_value() && stream_.end->ok());
  EXPECT_THAT(stream_.ids[0], ElementsAre(10, 11)) << "once";
  EXPECT_THAT(stream_.ids[1], ElementsAre(20, 21, 22, 23));
  ExpectNothingLeft();
}

}  // namespace
}  // namespace tandem::resume_losses_test
