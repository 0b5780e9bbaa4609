// A router tries routes that no client's request has passed, and knows which of them work.

#include "server/admin/canary.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/cluster_fixture.h"

namespace tandem::canary_test {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CanaryTest : public ClusterFixture {
 protected:
  struct Sent {
    v1::GenerateRequest request;
    TimePoint deadline;
    ResponseStream* stream;
  };

  CanaryTest() { canary_.Start(); }

  absl::StatusOr<RequestId> Take(v1::GenerateRequest request, TimePoint deadline,
                                 ResponseStream& stream) {
    if (!refusal_.ok()) return refusal_;
    sent_.push_back({std::move(request), deadline, &stream});
    return RequestId(1);
  }
  void Pass(Duration by) {
    for (; by > Duration::zero(); by -= std::chrono::milliseconds(100)) {
      clock_.Advance(std::chrono::milliseconds(100));
      loop_.RunReady();
    }
  }
  // The oldest request that is on its way ends with this status; tokens came first where it is OK.
  void End(const absl::Status& status) {
    ASSERT_THAT(sent_, testing::Not(IsEmpty()));
    const Sent sent = sent_.front();
    sent_.erase(sent_.begin());
    if (status.ok()) proofs_.Passed(sent.request.route(), clock_.Now());
    sent.stream->End(status);
  }
  void Register(const std::string& name, v1::WorkerRole role) {
    ASSERT_TRUE(cluster_.Register(Worker(name, role)).ok());
  }
  v1::RouteProof ProofOf(const std::string& route) {
    v1::GetStatusResponse status;
    canary_.Report(status);
    for (const v1::RouteProof& proof : status.route_proofs()) {
      if (proof.route() == route) return proof;
    }
    return {};
  }

  EventLoop loop_{clock_, 64};
  RouteProofs proofs_;
  absl::Status refusal_;
  std::vector<Sent> sent_;
  Canary canary_{
      {.submit = [this](
                     v1::GenerateRequest request, TimePoint deadline,
                     ResponseStream& stream) { return Take(std::move(request), deadline, stream); },
       .loop = loop_,
       .cluster = cluster_,
       .proofs = proofs_,
       .clock = clock_,
       .interval = seconds(10),
       .patience = seconds(5)}};
};

TEST_F(CanaryTest, ARouterIsReadyOnceARequestHasPassed) {
  Pass(seconds(1));
  EXPECT_THAT(sent_, IsEmpty()) << "there is no route";
  EXPECT_FALSE(canary_.Check().problem.empty());
  Register("u", v1::WORKER_ROLE_UNIFIED);
  Pass(seconds(1));
  ASSERT_THAT(sent_, SizeIs(1)) << "one at a time";
  EXPECT_EQ(sent_[0].request.route(), v1::ROUTE_UNIFIED);
  EXPECT_EQ(sent_[0].request.max_tokens(), 2);
  EXPECT_LE(sent_[0].deadline, clock_.Now() + seconds(5));
  EXPECT_THAT(canary_.Check().problem, HasSubstr("unified: no request has passed yet"));
  End(absl::OkStatus());
  EXPECT_EQ(canary_.Check().problem, "");
  clock_.Advance(std::chrono::milliseconds(300));
  EXPECT_EQ(canary_.Check().age, std::chrono::milliseconds(300));
  EXPECT_EQ(ProofOf("unified").canaries(), 1u);
  EXPECT_EQ(ProofOf("unified").age_ms(), 300);
}

TEST_F(CanaryTest, WhereClientsRequestsPassNoneIsSent) {
  Register("u", v1::WORKER_ROLE_UNIFIED);
  for (int i = 0; i < 30; ++i) {
    proofs_.Passed(v1::ROUTE_UNIFIED, clock_.Now());
    Pass(seconds(1));
  }
  EXPECT_THAT(sent_, IsEmpty());
  EXPECT_EQ(canary_.Check().problem, "");
  Pass(seconds(10));
  EXPECT_THAT(sent_, SizeIs(1));
}

TEST_F(CanaryTest, WhatFailsIsTriedAgainUntilItPasses) {
  Register("u", v1::WORKER_ROLE_UNIFIED);
  proofs_.Passed(v1::ROUTE_UNIFIED, clock_.Now());
  Pass(seconds(11));
  End(absl::DeadlineExceededError("no token came"));
  EXPECT_THAT(canary_.Check().problem, HasSubstr("unified: DEADLINE_EXCEEDED: no token came"));
  EXPECT_EQ(ProofOf("unified").failed_canaries(), 1u);
  Pass(seconds(2));
  ASSERT_THAT(sent_, SizeIs(1));
  End(absl::OkStatus());
  EXPECT_EQ(canary_.Check().problem, "");
  Pass(seconds(5));
  EXPECT_THAT(sent_, IsEmpty());
}

TEST_F(CanaryTest, AClientsRequestThatPassesLaterProvesARouteToo) {
  Register("u", v1::WORKER_ROLE_UNIFIED);
  Pass(seconds(1));
  End(absl::UnavailableError("gone"));
  EXPECT_NE(canary_.Check().problem, "");
  Pass(std::chrono::milliseconds(100));
  proofs_.Passed(v1::ROUTE_UNIFIED, clock_.Now());
  EXPECT_EQ(canary_.Check().problem, "");
}

TEST_F(CanaryTest, OneRouteThatWorksIsEnoughAndEachIsTried) {
  Register("u", v1::WORKER_ROLE_UNIFIED);
  Register("p", v1::WORKER_ROLE_PREFILL);
  Register("d", v1::WORKER_ROLE_DECODE);
  Pass(std::chrono::milliseconds(200));
  ASSERT_THAT(sent_, SizeIs(2));
  EXPECT_EQ(sent_[1].request.route(), v1::ROUTE_DISAGGREGATED);
  std::swap(sent_[0], sent_[1]);
  End(absl::UnavailableError("the link is broken"));
  EXPECT_THAT(canary_.Check().problem, HasSubstr("the link is broken"));
  End(absl::OkStatus());
  EXPECT_EQ(canary_.Check().problem, "");
  EXPECT_EQ(ProofOf("disaggregated").failed_canaries(), 1u);
  EXPECT_EQ(ProofOf("disaggregated").age_ms(), 0);
}

TEST_F(CanaryTest, ARouterThatRefusesItForWantOfRoomIsStillReady) {
  Register("u", v1::WORKER_ROLE_UNIFIED);
  refusal_ = absl::ResourceExhaustedError("as many as it takes");
  Pass(seconds(1));
  EXPECT_EQ(canary_.Check().problem, "");
  EXPECT_EQ(ProofOf("unified").failed_canaries(), 0u);
}

}  // namespace
}  // namespace tandem::canary_test
