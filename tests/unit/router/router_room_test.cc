// Decode workers without room for a request: which worker is asked next, where the request may
// queue, and what its client is told when no worker takes it.

#include <chrono>

#include "base/retry_after.h"
#include "tests/support/router_fixture.h"

namespace tandem::router_room_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

using RouterTest = RouterFixture;  // one suite in several files

TEST_F(RouterTest, AWaitForRoomThatEndsInARefusalIsAdmissionTime) {
  Submit(Ask());  // only d0 can take it
  clock_.Advance(milliseconds(30));
  Join("d1", v1::WORKER_ROLE_DECODE);
  RefuseReservation(ResourceExhausted("it waited too long"));
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  clock_.Advance(milliseconds(10));
  Reserved(5, milliseconds(9));
  Say("prefill p0", {999});
  Finish("prefill p0", kStop);
  ASSERT_EQ(stream_.finishes.size(), 1u);
  EXPECT_DOUBLE_EQ(stream_.finishes[0].stages().reserve_ms(), 1);
  EXPECT_DOUBLE_EQ(stream_.finishes[0].stages().admission_ms(), 39);
  EXPECT_DOUBLE_EQ(stream_.finishes[0].stages().earlier_attempts_ms(), 0) << "it is counted once";
}

TEST_F(RouterTest, NoRoomIsAnsweredWhenThereIsNoOtherDecodeWorker) {
  Submit(Ask());
  RefuseReservation(ResourceExhausted("no 3 blocks free"));
  ExpectFailed(absl::StatusCode::kResourceExhausted, "decode worker d0: no 3 blocks free");
  EXPECT_EQ(RetryAfter(*stream_.end), seconds(1)) << "after the next report";
}

TEST_F(RouterTest, OnlyTheLastCandidateQueuesTheRequest) {
  Join("d1", v1::WORKER_ROLE_DECODE);
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  Submit(Ask(v1::ROUTE_DISAGGREGATED));
  EXPECT_TRUE(workers_.reservations.back()->request.at_once());
  RefuseReservation(ResourceExhausted("full"));
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  EXPECT_FALSE(workers_.reservations.back()->request.at_once());
  RefuseReservation(ResourceExhausted("full"));
  ExpectFailed(absl::StatusCode::kResourceExhausted, "d1");
}

TEST_F(RouterTest, AFullWorkerQueuesTheRequestWhenTheOtherIsGone) {
  Join("d1", v1::WORKER_ROLE_DECODE);
  Submit(Ask());
  EXPECT_TRUE(workers_.reservations.back()->request.at_once()) << "there is d1";
  cluster_.Suspect({"d1", 1});
  RefuseReservation(ResourceExhausted("full; ask another worker"));
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d0"));
  EXPECT_FALSE(workers_.reservations.back()->request.at_once());
  EXPECT_EQ(router_.Status().reroutes().asked_again(), 1u);
  RefuseReservation(ResourceExhausted("waited in vain"));
  ExpectFailed(absl::StatusCode::kResourceExhausted, "d0: waited in vain");
  EXPECT_EQ(workers_.reservations.size(), 2u) << "it is not asked again and again";
}

TEST_F(RouterTest, ARefusalWithoutQueueingIsNotTheAnswerWhenNoWorkerIsLeft) {
  Join("d1", v1::WORKER_ROLE_DECODE);
  Submit(Ask());
  EXPECT_TRUE(workers_.reservations.back()->request.at_once()) << "there is d1";
  cluster_.Suspect({"d1", 1});
  cluster_.Suspect({"p0", 1});
  RefuseReservation(ResourceExhausted("full; ask another worker"));
  EXPECT_TRUE(workers_.Open().empty());
  ASSERT_FALSE(stream_.end.has_value()) << *stream_.end;
  Beat("p0");
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d0"));
  EXPECT_FALSE(workers_.reservations.back()->request.at_once());
}

TEST_F(RouterTest, FullDecodeWorkersAreAskedAgainWhenTheUnifiedOneIsFullToo) {
  Join("d1", v1::WORKER_ROLE_DECODE);
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  cluster_.Charge({"u0", 1}, {.sequences = 9});
  Submit(Ask(v1::ROUTE_AUTO));
  RefuseReservation(ResourceExhausted("full"));
  RefuseReservation(ResourceExhausted("full"));
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0"));
  End("generate u0", ResourceExhausted("too many wait"), kWorker);
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d0"));
  EXPECT_TRUE(workers_.reservations.back()->request.at_once()) << "there is d1";
  RefuseReservation(ResourceExhausted("full"));
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  EXPECT_FALSE(workers_.reservations.back()->request.at_once());
  Reserved();
  EXPECT_THAT(workers_.Open(), ElementsAre("prefill p0"));
  cluster_.Discharge({"u0", 1}, {.sequences = 9});
  const v1::RerouteUse use = router_.Status().reroutes();
  EXPECT_EQ(use.other_worker(), 2u);
  EXPECT_EQ(use.to_unified(), 1u);
  EXPECT_EQ(use.to_disaggregated(), 1u);
  EXPECT_EQ(use.asked_again(), 0u);
  EXPECT_EQ(use.latest(), "decode worker d0: full");
}

TEST_F(RouterTest, TheRetryAfterOfTheWorkerIsPassedOn) {
  absl::Status refusal = ResourceExhausted("no 3 blocks free");
  SetRetryAfter(refusal, milliseconds(70));
  Submit(Ask());
  RefuseReservation(refusal);
  ExpectFailed(absl::StatusCode::kResourceExhausted, "d0");
  EXPECT_EQ(RetryAfter(*stream_.end), milliseconds(70));
}

TEST_F(RouterTest, NoRoomTriesTheNextDecodeWorkerAndThenUnified) {
  Join("d1", v1::WORKER_ROLE_DECODE);
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  cluster_.Charge({"u0", 1}, {.sequences = 9});  // busy, so that auto disaggregates
  Submit(Ask(v1::ROUTE_AUTO));
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d0"));
  RefuseReservation(ResourceExhausted("full"));
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  EXPECT_TRUE(workers_.reservations.back()->request.at_once()) << "there is a unified worker";
  RefuseReservation(ResourceExhausted("full"));
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0"));
  Say("generate u0", {1, 2, 3, 4});
  Finish("generate u0", kLength);
  ASSERT_TRUE(stream_.end.has_value() && stream_.end->ok());
  EXPECT_EQ(stream_.finishes[0].route(), v1::ROUTE_UNIFIED);
  cluster_.Discharge({"u0", 1}, {.sequences = 9});
  ExpectNothingLeft();
}

}  // namespace
}  // namespace tandem::router_room_test
