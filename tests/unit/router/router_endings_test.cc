// Requests that the router ends before their answers are whole: cancelled, failed by a worker, read
// too slowly, past their deadline, or left when it drains.

#include <chrono>

#include "tests/support/router_fixture.h"

namespace tandem::router_endings_test {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;

using RouterTest = RouterFixture;  // one suite in several files

// The decode worker took the request; what it cannot use comes from the prefill worker.
TEST_F(RouterTest, ADecodeWorkersRefusalOfAHandOffIsNotTheClientsFault) {
  Submit(Ask());
  Reserved();
  Say("prefill p0", {10});
  End("decode d0", InvalidArgument("first_tokens: the log-probability of token 3 is nan"), kWorker);
  ExpectFailed(absl::StatusCode::kInternal, "decode worker d0: first_tokens");
}

TEST_F(RouterTest, CancelStopsBothWorkersAndReleasesTheReservation) {
  const RequestId id = Submit(Ask());
  Reserved();
  Say("prefill p0", {10});
  router_.Cancel(id, Cancelled("the client went away"));
  loop_.RunReady();
  EXPECT_THAT(workers_.released, ElementsAre("d0#5"));
  ExpectFailed(absl::StatusCode::kCancelled, "client");
}

TEST_F(RouterTest, CancelWhileReserving) {
  const RequestId id = Submit(Ask());
  router_.Cancel(id, Cancelled("the client went away"));
  loop_.RunReady();
  ExpectFailed(absl::StatusCode::kCancelled, "client");
}

TEST_F(RouterTest, AStreamWithoutAFinishIsAnErrorNotASuccess) {
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  Submit(Ask(v1::ROUTE_UNIFIED));
  Say("generate u0", {1});
  End("generate u0", absl::OkStatus(), kWorker);
  ExpectFailed(absl::StatusCode::kInternal, "without a finish");
}

TEST_F(RouterTest, DeadlinesOfWorkersPassThrough) {
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  Submit(Ask(v1::ROUTE_UNIFIED), clock_.Now() + seconds(1));
  End("generate u0", DeadlineExceeded("passed"), kWorker);
  ExpectFailed(absl::StatusCode::kDeadlineExceeded, "unified worker u0");
}

TEST_F(RouterTest, ASlowReaderIsEnded) {
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  stream_.capacity = 1;
  Submit(Ask(v1::ROUTE_UNIFIED));
  Say("generate u0", {1});
  Say("generate u0", {2});
  ExpectFailed(absl::StatusCode::kResourceExhausted, "reads too slowly");
}

TEST_F(RouterTest, DrainRefusesNewAndWaitsForOld) {
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  Submit(Ask(v1::ROUTE_UNIFIED));
  bool drained = false;
  router_.Drain(clock_.Now() + seconds(10), [&drained] { drained = true; });
  loop_.RunReady();
  RecordingStream other;
  EXPECT_TRUE(absl::IsUnavailable(router_.Submit(Ask(), kNoDeadline, other).status()));
  EXPECT_FALSE(drained);
  Say("generate u0", {1});
  Finish("generate u0", kLength);
  EXPECT_TRUE(drained);
}

TEST_F(RouterTest, ARequestSubmittedAsDrainingBeginsIsEnded) {
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  ASSERT_TRUE(router_.Submit(Ask(), kNoDeadline, stream_).ok());
  bool drained = false;
  router_.Drain(clock_.Now() + seconds(10), [&drained] { drained = true; });
  loop_.RunReady();
  ExpectFailed(absl::StatusCode::kUnavailable, "shutting down");
  EXPECT_TRUE(drained);
}

TEST_F(RouterTest, DrainFailsTheRemainingRequestsAtItsDeadline) {
  Submit(Ask());
  bool drained = false;
  router_.Drain(clock_.Now() + seconds(4), [&drained] { drained = true; });
  loop_.RunReady();
  clock_.Advance(seconds(4));
  loop_.RunReady();
  EXPECT_TRUE(drained);
  ExpectFailed(absl::StatusCode::kUnavailable, "shutting down");
}

}  // namespace
}  // namespace tandem::router_endings_test
