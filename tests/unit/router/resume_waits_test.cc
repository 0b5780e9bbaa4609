// Requests that lost a worker, or find that one was lost, and wait for another: what ends the wait,
// and how long it may last.

#include <chrono>

#include "tests/support/resume_fixture.h"

namespace tandem::resume_waits_test {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

using LossTest = ResumeFixture;  // one suite in several files

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

}  // namespace
}  // namespace tandem::resume_waits_test
