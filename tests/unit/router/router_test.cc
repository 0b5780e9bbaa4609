// Requests on their way through the workers, and what the router's status says of them.

#include "router/router.h"

#include <chrono>
#include <map>
#include <string>

#include "base/retry_after.h"
#include "tests/support/router_fixture.h"

namespace tandem::router_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

using RouterTest = RouterFixture;  // one suite in several files

TEST_F(RouterTest, ADecisionCopiesNoWorker) {
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  const ClusterView* const before = cluster_.View().get();
  Submit(Ask(v1::ROUTE_UNIFIED));
  EXPECT_EQ(cluster_.View()->workers.back().charged.sequences, 1);
  Join("u1", v1::WORKER_ROLE_UNIFIED);
  EXPECT_EQ(cluster_.View().get(), before);
}

TEST_F(RouterTest, ARouteIsProvenByTheWorkerThatEndsIt) {
  const RouteProofs& proofs = counts_.proofs;
  Submit(Ask());
  Reserved(5);
  Say("prefill p0", {10});
  EXPECT_FALSE(proofs.latest(v1::ROUTE_DISAGGREGATED)) << "the decode worker has sent nothing";
  clock_.Advance(std::chrono::milliseconds(20));
  Finish("prefill p0", kHandedOff);
  Say("decode d0", {11});
  EXPECT_EQ(proofs.latest(v1::ROUTE_DISAGGREGATED), clock_.Now());
  EXPECT_FALSE(proofs.latest(v1::ROUTE_UNIFIED));
  Say("decode d0", {12, 13});
  Finish("decode d0", kLength);
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  RecordingStream second;
  ASSERT_TRUE(router_.Submit(Ask(v1::ROUTE_UNIFIED), kNoDeadline, second).ok());
  loop_.RunReady();
  Say("generate u0", {10});
  EXPECT_EQ(proofs.latest(v1::ROUTE_UNIFIED), clock_.Now());
}

TEST_F(RouterTest, DisaggregatedRequestGoesThroughBothWorkers) {
  Submit(Ask());
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d0"));
  clock_.Advance(milliseconds(2));
  Reserved(5, std::chrono::microseconds(500));
  EXPECT_THAT(workers_.Open(), ElementsAre("prefill p0"));
  clock_.Advance(milliseconds(8));
  Say("prefill p0", {10});
  EXPECT_THAT(workers_.Open(), UnorderedElementsAre("prefill p0", "decode d0"));
  ASSERT_EQ(workers_.first_tokens.size(), 1u);
  EXPECT_EQ(workers_.first_tokens[0].sampled().token_id(), 10);
  EXPECT_THAT(stream_.tokens, ElementsAre(10)) << "the first token is streamed at once";
  Finish("prefill p0", kHandedOff);
  clock_.Advance(milliseconds(30));
  Say("decode d0", {11, 12, 13});
  Finish("decode d0", kLength);

  ASSERT_TRUE(stream_.end.has_value() && stream_.end->ok());
  EXPECT_THAT(stream_.tokens, ElementsAre(10, 11, 12, 13));
  ASSERT_EQ(stream_.finishes.size(), 1u);
  const v1::ChoiceFinish& finish = stream_.finishes[0];
  EXPECT_EQ(finish.reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(finish.route(), v1::ROUTE_DISAGGREGATED);
  EXPECT_EQ(finish.kv_bytes().raw(), 77u);
  EXPECT_DOUBLE_EQ(finish.stages().ttft_ms(), 10);
  EXPECT_DOUBLE_EQ(finish.stages().reserve_ms(), 1.5);
  EXPECT_DOUBLE_EQ(finish.stages().admission_ms(), 0.5) << "waiting for room is no asking";
  EXPECT_DOUBLE_EQ(finish.tpot_ms(), 10);
  EXPECT_EQ(stream_.summary->usage().prompt_tokens(), 3);
  EXPECT_EQ(stream_.summary->usage().completion_tokens(), 4);
  EXPECT_THAT(workers_.released, IsEmpty());
  ExpectNothingLeft();
}

TEST_F(RouterTest, TheLedgerFollowsARequestThroughItsWorkers) {
  const auto own = [this](const char* name) { return ledger_.Find({name, 1})->own(); };
  Submit(Ask());
  EXPECT_EQ(own("p0").waiting_prompt_tokens, 3);
  EXPECT_EQ(own("d0").decoding, 1) << "its place is taken from the reservation on";
  EXPECT_EQ(ledger_.Find({"p0", 1})->parts().front().stage, PartInFlight::Stage::kAwaitingRoom);
  Reserved();
  EXPECT_EQ(ledger_.Find({"p0", 1})->parts().front().stage, PartInFlight::Stage::kWaiting);
  Say("prefill p0", {10});
  EXPECT_EQ(own("p0").waiting_prompt_tokens, 0);
  Say("decode d0", {11, 12});
  EXPECT_EQ(own("d0").decode_context_tokens, 5);
  Finish("prefill p0", kHandedOff);
  Say("decode d0", {13});
  Finish("decode d0", kLength);
  ExpectNothingLeft();
  const v1::RoutingUse routing = router_.Status().routing();
  EXPECT_EQ(routing.policy(), "least-loaded");
  EXPECT_EQ(routing.disaggregated(), 1u);
  EXPECT_EQ(routing.unified(), 0u);
  EXPECT_EQ(routing.lowest_cost(), 1u);
}

TEST_F(RouterTest, TheStatusSaysWhichWorkersDrain) {
  const auto draining = [this] {
    std::map<std::string, bool> by_name;
    const v1::GetStatusResponse status = router_.Status();
    for (const v1::WorkerStatus& worker : status.workers()) {
      by_name[worker.name()] = worker.draining();
    }
    return by_name;
  };
  EXPECT_THAT(draining(), testing::UnorderedElementsAre(testing::Pair("p0", false),
                                                        testing::Pair("d0", false)));
  Leave("d0");
  EXPECT_THAT(draining(),
              testing::UnorderedElementsAre(testing::Pair("p0", false), testing::Pair("d0", true)));
}

TEST_F(RouterTest, TheStatusHasAWorkersReportButNotTheHashOfItsWeights) {
  v1::WorkerLoad load;
  load.set_waiting_prompt_tokens(70);
  load.mutable_kv()->set_hit_tokens(30);
  load.set_weights_hash(12345);
  Report("d0", load);
  const v1::GetStatusResponse status = router_.Status();
  ASSERT_EQ(status.workers(0).name(), "d0");
  load.clear_weights_hash();
  EXPECT_EQ(status.workers(0).load().SerializeAsString(), load.SerializeAsString());
}

TEST_F(RouterTest, FirstTokenThatEndsTheRequestNeedsNoDecode) {
  Submit(Ask());
  Reserved();
  Say("prefill p0", {999});  // EOS
  EXPECT_THAT(workers_.Open(), ElementsAre("prefill p0"));
  Finish("prefill p0", kStop);
  ASSERT_TRUE(stream_.end.has_value() && stream_.end->ok());
  EXPECT_EQ(stream_.finishes[0].reason(), v1::FINISH_REASON_STOP);
  EXPECT_THAT(workers_.released, ElementsAre("d0#5"));
  ExpectNothingLeft();
}

TEST_F(RouterTest, DecodeMayFinishBeforeThePrefillWorkersReport) {
  Submit(Ask());
  Reserved();
  Say("prefill p0", {10});
  Say("decode d0", {11, 12, 13});
  Finish("decode d0", kLength);
  EXPECT_FALSE(stream_.end.has_value());
  Finish("prefill p0", kHandedOff);
  ASSERT_TRUE(stream_.end.has_value() && stream_.end->ok());
  EXPECT_EQ(stream_.finishes[0].kv_bytes().raw(), 77u);
  ExpectNothingLeft();
}

TEST_F(RouterTest, AReportThatNeverComesDoesNotKeepTheClientWaiting) {
  Submit(Ask());
  Reserved();
  Say("prefill p0", {10});
  Say("decode d0", {11, 12, 13});
  Finish("decode d0", kLength);
  clock_.Advance(seconds(2));
  loop_.RunReady();
  ASSERT_TRUE(stream_.end.has_value() && stream_.end->ok());
  ExpectNothingLeft();
}

TEST_F(RouterTest, PrefillWorkerLostOnceTheKvHasArrivedDoesNotMatter) {
  Submit(Ask());
  Reserved();
  Say("prefill p0", {10});
  Say("decode d0", {11});
  End("prefill p0", Unavailable("Socket closed"), kNetwork);
  Say("decode d0", {12, 13});
  Finish("decode d0", kLength);
  ASSERT_TRUE(stream_.end.has_value() && stream_.end->ok());
  EXPECT_THAT(stream_.tokens, ElementsAre(10, 11, 12, 13));
  ExpectNothingLeft();
}

TEST_F(RouterTest, TokensOfPromptsAndOutputsCountAgainstTheRateOfTheTenant) {
  TenantPolicy policy;
  policy.tenants["a"].tokens_per_minute = 7;
  admission_.SetTenants(std::make_shared<const TenantPolicy>(policy), clock_.Now());
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  v1::GenerateRequest request = Ask(v1::ROUTE_UNIFIED);
  request.set_tenant("a");
  Submit(request);
  Say("generate u0", {10, 11, 12, 13});
  Finish("generate u0", kLength);
  ASSERT_TRUE(stream_.end.has_value() && stream_.end->ok());
  RecordingStream second;
  const absl::Status refused = router_.Submit(request, kNoDeadline, second).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("tokens per minute"));
  clock_.Advance(*RetryAfter(refused));
  const absl::StatusOr<RequestId> again = router_.Submit(request, kNoDeadline, second);
  ASSERT_TRUE(again.ok()) << again.status();
  loop_.RunReady();
  router_.Cancel(*again, absl::CancelledError());
  loop_.RunReady();
}

}  // namespace
}  // namespace tandem::router_test
