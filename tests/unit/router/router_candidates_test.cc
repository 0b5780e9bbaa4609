// Which workers a request may go to: those whose context holds it, and those that are still starting
// or already leaving only where no other can take it.

#include "tests/support/router_fixture.h"

namespace tandem::router_candidates_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

using RouterTest = RouterFixture;  // one suite in several files

// One worker with a tiny context must not have the requests of all others refused.
TEST_F(RouterTest, ARequestGoesOnlyToWorkersWhoseContextHoldsIt) {
  v1::RegisterRequest tiny = Registration("u0", v1::WORKER_ROLE_UNIFIED);
  tiny.set_max_context_tokens(6);
  Join(tiny);
  EXPECT_EQ(router_.Status().max_context_tokens(), 100);
  Submit(Ask(v1::ROUTE_AUTO));  // 3 tokens and 4 more
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d0"));
  RecordingStream second;
  EXPECT_EQ(router_.Submit(Ask(v1::ROUTE_UNIFIED), kNoDeadline, second).status().code(),
            absl::StatusCode::kInvalidArgument);
  v1::GenerateRequest brief = Ask(v1::ROUTE_UNIFIED);
  brief.set_max_tokens(3);
  ASSERT_TRUE(router_.Submit(brief, kNoDeadline, second).ok());
  loop_.RunReady();
  EXPECT_THAT(workers_.Open(), Contains("generate u0"));
}

// A worker that loads its weights has nothing to do, and would draw all requests.
TEST_F(RouterTest, AStartingWorkerGetsRequestsThatNoOtherWorkerCanTake) {
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  Join("u1", v1::WORKER_ROLE_UNIFIED);
  v1::WorkerLoad load;
  load.set_running(5);
  Report("u1", load);
  load.set_running(0);
  load.set_starting(true);
  Report("u0", load);
  Submit(Ask(v1::ROUTE_UNIFIED));
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u1"));
  RecordingStream second;
  Leave("u1");
  ASSERT_TRUE(router_.Submit(Ask(v1::ROUTE_UNIFIED), kNoDeadline, second).ok());
  loop_.RunReady();
  EXPECT_THAT(workers_.Open(), Contains("generate u0"));
}

TEST_F(RouterTest, AStartingWorkerIsAskedBeforeARequestWaitsForRoom) {
  v1::WorkerLoad load;
  load.set_starting(true);
  Join("d1", v1::WORKER_ROLE_DECODE);
  Report("d1", load);
  Submit(Ask());
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d0"));
  RefuseReservation(ResourceExhausted("full"));
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
}

TEST_F(RouterTest, ALeavingWorkerKeepsItsRequestsWhileTheOtherStarts) {
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  Submit(Ask(v1::ROUTE_UNIFIED));
  Say("generate u0", {1});
  v1::WorkerLoad load;
  load.set_starting(true);
  Join("u1", v1::WORKER_ROLE_UNIFIED);
  Report("u1", load);
  Leave("u0");
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0"));
  load.set_starting(false);
  Report("u1", load);
  EXPECT_THAT(workers_.Open(), Contains("generate u1"));
}

TEST_F(RouterTest, NoWorkersNoRoute) {
  Submit(Ask(v1::ROUTE_UNIFIED));
  ExpectFailed(absl::StatusCode::kUnavailable, "needs a unified worker: none registered");
}

}  // namespace
}  // namespace tandem::router_candidates_test
