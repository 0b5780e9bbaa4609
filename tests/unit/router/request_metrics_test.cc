// What a router counts of its requests.

#include "router/request/request_metrics.h"

#include <numeric>

#include "tests/support/router_fixture.h"

namespace tandem::request_metrics_test {
namespace {

using std::chrono::milliseconds;

class RequestMetricsTest : public RouterFixture {
 protected:
  RequestMetricsTest() { Join("u0", v1::WORKER_ROLE_UNIFIED); }

  uint64_t Count(RequestCounter which) const { return counts_.metrics.count(which); }
  HistogramState State(RequestHistogram which) const { return counts_.metrics.state(which); }
  uint64_t Observed(RequestHistogram which) const {
    const HistogramState state = State(which);
    return std::accumulate(state.counts.begin(), state.counts.end(), uint64_t{0});
  }
  uint64_t Ends(absl::StatusCode code) const {
    return counts_.metrics.ends()[static_cast<size_t>(code)];
  }
};

TEST_F(RequestMetricsTest, AWholeRequestIsInEveryHistogram) {
  v1::GenerateRequest request = Ask(v1::ROUTE_UNIFIED);
  request.set_request_id("mine");
  Submit(request);
  clock_.Advance(milliseconds(300));
  Say("generate u0", {10});
  for (int i = 0; i < 3; ++i) {
    clock_.Advance(milliseconds(40));
    Say("generate u0", {11 + i});
  }
  Finish("generate u0", kLength);
  for (size_t i = 0; i < kNumRequestHistograms; ++i) {
    const auto which = static_cast<RequestHistogram>(i);
    EXPECT_EQ(Observed(which), which == RequestHistogram::kInterToken ? 3u : 1u) << i;
  }
  EXPECT_NEAR(State(RequestHistogram::kTimeToFirstToken).sum, 0.3, 1e-9);
  EXPECT_NEAR(State(RequestHistogram::kInterToken).sum, 0.12, 1e-9);
  EXPECT_NEAR(State(RequestHistogram::kTimePerOutputToken).sum, 0.04, 1e-9);
  EXPECT_NEAR(State(RequestHistogram::kEndToEnd).sum, 0.42, 1e-9);
  EXPECT_NEAR(State(RequestHistogram::kPrefill).sum, 0.001, 1e-9);
  EXPECT_NEAR(State(RequestHistogram::kDecode).sum, 0.12, 1e-9);
  EXPECT_EQ(State(RequestHistogram::kPromptTokens).sum, 3);
  EXPECT_EQ(State(RequestHistogram::kGenerationTokens).sum, 4);
  EXPECT_EQ(Count(RequestCounter::kPromptTokens), 3u);
  EXPECT_EQ(Count(RequestCounter::kGenerationTokens), 4u);
  EXPECT_EQ(Count(RequestCounter::kPrefixQueries), 3u);
  EXPECT_EQ(Count(RequestCounter::kPrefixHits), 2u);
  EXPECT_EQ(Count(RequestCounter::kPreemptions), 1u);
  EXPECT_EQ(Count(RequestCounter::kLength), 1u);
  EXPECT_EQ(Ends(absl::StatusCode::kOk), 1u);
  const HistogramState ttft = State(RequestHistogram::kTimeToFirstToken);
  for (size_t i = 0; i < ttft.counts.size(); ++i) {
    EXPECT_EQ(ttft.latest[i].id, ttft.counts[i] > 0 ? "mine" : "") << i;
  }
}

TEST_F(RequestMetricsTest, TokensOfOneMessageCameEvenly) {
  Submit(Ask(v1::ROUTE_UNIFIED));
  Say("generate u0", {10});
  clock_.Advance(milliseconds(60));
  Say("generate u0", {11, 12, 13});
  EXPECT_EQ(Observed(RequestHistogram::kInterToken), 3u);
  EXPECT_NEAR(State(RequestHistogram::kInterToken).sum, 0.06, 1e-9);
  EXPECT_EQ(Count(RequestCounter::kGenerationTokens), 4u);
}

// A pause between two choices is no latency of either.
TEST_F(RequestMetricsTest, GapsAreOfEachChoice) {
  v1::GenerateRequest request = Ask(v1::ROUTE_UNIFIED);
  request.set_n(2);
  Submit(request);
  Say("generate u0", {10}, 0);
  clock_.Advance(milliseconds(500));
  Say("generate u0", {20}, 1);
  EXPECT_EQ(Observed(RequestHistogram::kTimeToFirstToken), 1u);
  EXPECT_EQ(Observed(RequestHistogram::kInterToken), 0u);
  clock_.Advance(milliseconds(10));
  Say("generate u0", {21}, 1);
  EXPECT_NEAR(State(RequestHistogram::kInterToken).sum, 0.01, 1e-9);
  EXPECT_EQ(Count(RequestCounter::kGenerationTokens), 3u);
}

TEST_F(RequestMetricsTest, ARequestThatEndsEarlyIsCountedByItsReasonAlone) {
  const RequestId cancelled = Submit(Ask(v1::ROUTE_UNIFIED));
  Say("generate u0", {10});
  router_.Cancel(cancelled, absl::CancelledError("gone"));
  loop_.RunReady();
  EXPECT_EQ(Count(RequestCounter::kAborted), 1u);
  EXPECT_EQ(Ends(absl::StatusCode::kCancelled), 1u);
  EXPECT_EQ(Observed(RequestHistogram::kEndToEnd), 0u);
  EXPECT_EQ(Count(RequestCounter::kPrefixQueries), 0u);
}

TEST_F(RequestMetricsTest, ARequestThatIsRefusedIsCountedByItsStatus) {
  v1::GenerateRequest request = Ask();
  request.set_max_tokens(-1);
  EXPECT_TRUE(absl::IsInvalidArgument(router_.Submit(request, kNoDeadline, stream_).status()));
  request = Ask();
  request.set_n(9);  // more than may be in flight
  EXPECT_FALSE(router_.Submit(request, kNoDeadline, stream_).ok());
  EXPECT_EQ(Ends(absl::StatusCode::kInvalidArgument) + Ends(absl::StatusCode::kResourceExhausted),
            2u);
  EXPECT_EQ(Count(RequestCounter::kFailed), 2u);
}

}  // namespace
}  // namespace tandem::request_metrics_test
