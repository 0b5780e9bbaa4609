// A request whose worker is leaving continues elsewhere, if another worker can take it.

#include "tests/support/resume_fixture.h"

namespace tandem::resume_leaving_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class LeavingTest : public ResumeFixture {};

TEST_F(LeavingTest, ALeavingDecodeWorkersStreamsMoveAndCostNoBudget) {
  Join("d1", kDecodeRole);
  SubmitAndHandOver();
  Say("decode d0", {11});
  Leave("d0");
  EXPECT_THAT(workers_.Open(), UnorderedElementsAre("decode d0", "reserve d1"));
  Say("decode d0", {12});  // until there is room elsewhere
  Beat("p0");
  EXPECT_THAT(workers_.Open(), UnorderedElementsAre("decode d0", "reserve d1")) << "asked once";
  Reserved(6);
  EXPECT_THAT(workers_.Open(), ElementsAre("prefill p0"));
  EXPECT_THAT(workers_.released, ElementsAre("d0#5"));
  Say("prefill p0", {10});
  EXPECT_THAT(SoFar(), ElementsAre(10, 11, 12));
  Finish("prefill p0", kHandedOff);
  Say("decode d1", {13});
  Finish("decode d1", kLength);
  ExpectTheAnswer(1);
  EXPECT_EQ(router_.Status().resumes().migrated(), 1u);
  EXPECT_EQ(router_.Status().resumes().lost(), 0u);
  EXPECT_EQ(Causes(), "leaving 1");
}

TEST_F(LeavingTest, WithoutRoomElsewhereAStreamStaysUntilThereIsSome) {
  Join("d1", kDecodeRole);
  SubmitAndHandOver();
  Leave("d0");
  RefuseReservation(ResourceExhausted("full"));
  EXPECT_THAT(workers_.Open(), ElementsAre("decode d0"));
  Beat("p0");
  EXPECT_THAT(workers_.Open(), ElementsAre("decode d0"));
  Beat("d1");
  EXPECT_THAT(workers_.Open(), UnorderedElementsAre("decode d0", "reserve d1"));
  Say("decode d0", {11, 12, 13});
  Finish("decode d0", kLength);
  ExpectTheAnswer(0);  // it ended first, and the attempt to move it was undone
}

TEST_F(LeavingTest, AWorkerLostDuringAMoveIsALossAsUsual) {
  Join("d1", kDecodeRole);
  SubmitAndHandOver();
  Leave("d0");
  LoseCall("decode d0");
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  ContinueAt("p0", "d1", 6, {11, 12, 13});
  ExpectTheAnswer(1);
}

TEST_F(LeavingTest, AMoveIsCancelledWhenItsPrefillWorkerIsLost) {
  Join("d1", kDecodeRole);
  SubmitAndHandOver();
  Leave("d0");
  EXPECT_THAT(workers_.Open(), UnorderedElementsAre("decode d0", "reserve d1"));
  Join("p0", kPrefillRole, 2);
  EXPECT_THAT(workers_.Open(), UnorderedElementsAre("decode d0", "reserve d1"));
  EXPECT_EQ(workers_.reservations.size(), 3u) << "asked anew, for the one that is there now";
  ContinueAt("p0", "d1", 6, {11, 12, 13});
  EXPECT_EQ(workers_.streams.back()->name, "decode d1");
  ExpectTheAnswer(1);
}

TEST_F(LeavingTest, ALeavingWorkerFinishesRequestsThatNoOtherWorkerCanTake) {
  Join("u0", kUnifiedRole);
  Submit(Ask(v1::ROUTE_UNIFIED));
  Say("generate u0", {10});
  Leave("u0");
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0"));
  Join("u1", kUnifiedRole);  // this worker can
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u1"));
  Say("generate u1", {11, 12, 13});
  Finish("generate u1", kLength);
  ExpectTheAnswer(1);
}

TEST_F(LeavingTest, AStreamStaysWithALeavingWorkerWhoseNameIsTaken) {
  SubmitAndHandOver();
  Say("decode d0", {11});
  Leave("d0");
  Join("d0", kDecodeRole, 2);
  EXPECT_THAT(workers_.Open(), UnorderedElementsAre("decode d0", "reserve d0"));
  EXPECT_EQ(workers_.reservations.back()->request.epoch(), 2u);
  EXPECT_EQ(router_.Status().workers_size(), 2) << "the status lists each name once";
  RefuseReservation(ResourceExhausted("full"));
  Beat("d0");  // the one that leaves keeps its lease
  EXPECT_THAT(workers_.Open(), ElementsAre("decode d0"));
  Say("decode d0", {12, 13});
  Finish("decode d0", kLength);
  ExpectTheAnswer(0);
  Leave("d0");
  EXPECT_EQ(Causes(), "");
}

TEST_F(LeavingTest, AStreamMovesToTheWorkerThatTookTheNameAndCostsNoBudget) {
  Join("u0", kUnifiedRole);
  Submit(Ask(v1::ROUTE_UNIFIED));
  Say("generate u0", {10});
  Leave("u0");
  Join("u0", kUnifiedRole, 2);
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0"));
  EXPECT_EQ(workers_.streams.back()->epoch, 2u);
  Say("generate u0", {11, 12, 13});
  Finish("generate u0", kLength);
  ExpectTheAnswer(1);
  EXPECT_EQ(Causes(), "leaving 1");
}

TEST_F(LeavingTest, ANewRequestWaitsForTheReplacementOfALeavingWorker) {
  Join("u0", kUnifiedRole);
  Leave("u0");
  Submit(Ask(v1::ROUTE_UNIFIED));
  EXPECT_THAT(workers_.Open(), IsEmpty()) << "it takes nothing new";
  EXPECT_FALSE(stream_.end.has_value());
  Join("u1", kUnifiedRole);
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u1"));
  Say("generate u1", {10, 11, 12, 13});
  Finish("generate u1", kLength);
  ExpectTheAnswer(0);
}

TEST_F(LeavingTest, ANewRequestIsRefusedWhenALeavingWorkerIsNotReplaced) {
  Join("u0", kUnifiedRole);
  Leave("u0");
  Submit(Ask(v1::ROUTE_UNIFIED));
  for (int i = 0; i < 4; ++i) {
    clock_.Advance(std::chrono::seconds(3));
    for (const char* name : {"u0", "p0", "d0"}) Beat(name);  // it still ends what it has
  }
  ExpectFailed(absl::StatusCode::kUnavailable, "needs a unified worker: not answering or leaving");
}

TEST_F(LeavingTest, ALeavingPrefillWorkerFinishesWhatItHasBegun) {
  Join("p1", kPrefillRole);
  Submit(Ask());
  Reserved(5);
  Leave("p0");
  EXPECT_THAT(workers_.Open(), ElementsAre("prefill p0"));
  Say("prefill p0", {10});
  Finish("prefill p0", kHandedOff);
  Say("decode d0", {11, 12, 13});
  Finish("decode d0", kLength);
  ExpectTheAnswer(0);
}

TEST_F(LeavingTest, ADecodeWorkerThatLeavesBeforeItsKvArrivesIsReplacedImmediately) {
  Join("d1", kDecodeRole);
  Submit(Ask());
  Reserved(5);
  Leave("d0");
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  EXPECT_THAT(workers_.released, ElementsAre("d0#5"));
  ContinueAt("p0", "d1", 6, {11, 12, 13});
  ExpectTheAnswer(1);
}

TEST_F(LeavingTest, ARequestThatReservesAtALeavingWorkerGoesElsewhere) {
  Join("p1", kPrefillRole);
  Submit(Ask());
  Leave("p0");
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d0"));
  ContinueAt("p1", "d0", 6, {11, 12, 13});
  ExpectTheAnswer(1);
}

TEST_F(LeavingTest, ARequestThatALeavingWorkerCouldNotFinishCostsNoBudget) {
  Join("u0", kUnifiedRole);
  Submit(Ask(v1::ROUTE_UNIFIED));
  Say("generate u0", {10});
  Leave("u0");
  End("generate u0", Unavailable("this worker is shutting down"), kWorker);
  EXPECT_EQ(router_.Status().resumes().migrated(), 1u);
  EXPECT_FALSE(stream_.end.has_value());
}

}  // namespace
}  // namespace tandem::resume_leaving_test
