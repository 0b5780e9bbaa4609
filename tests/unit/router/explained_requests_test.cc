// What a router keeps of the requests that it sent to workers, and what it predicted for them.

#include <cmath>

#include "base/retry_after.h"
#include "router/explain/decision_log.h"
#include "tests/support/router_fixture.h"

namespace tandem::explained_requests_test {
namespace {

using std::chrono::milliseconds;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// Predicts the same for every placement: TTFT 8 ms, three further tokens in 24 ms.
class PredictingPolicy final : public RoutingPolicy {
 protected:
  double Rank(const Candidate&, const RouteQuery&) const override { return 0; }
  PlacementScore Score(const Placement& placement, const RouteQuery&) const override {
    PlacementPrediction prediction;
    prediction.stages = {.queue = ModelTime(2), .prefill = ModelTime(6), .decode = ModelTime(24)};
    prediction.ttft = ModelTime(8);
    prediction.tpot = ModelTime(8);
    prediction.e2e = ModelTime(32);
    return {.cost = placement.prefill->id.name == "u0" ? 1.0 : 2.0,
            .unit = PlacementScore::Unit::kMilliseconds,
            .features = {},
            .prediction = prediction};
  }
};

// Workers p0, d0 and u0.
class ExplainedRequestsTest : public RouterFixture {
 protected:
  explicit ExplainedRequestsTest(
      std::unique_ptr<RoutingPolicy> policy = std::make_unique<PredictingPolicy>())
      : RouterFixture(std::move(policy)) {
    Join("u0", v1::WORKER_ROLE_UNIFIED);
  }

  static v1::GenerateRequest Named(const std::string& id, v1::Route route = v1::ROUTE_UNIFIED) {
    v1::GenerateRequest request = Ask(route);
    request.set_request_id(id);
    request.set_ignore_eos(true);
    return request;
  }
  absl::StatusOr<v1::ExplainResponse> Explain(const v1::ExplainRequest& request) {
    absl::StatusOr<v1::ExplainResponse> answer = Internal("no answer");
    router_.Explain(request, [&answer](absl::StatusOr<v1::ExplainResponse> response) {
      answer = std::move(response);
    });
    loop_.RunReady();
    return answer;
  }
  v1::RequestExplanation Explained(const std::string& id) {
    v1::ExplainRequest request;
    request.set_request_id(id);
    const auto response = Explain(request);
    EXPECT_TRUE(response.ok()) << response.status();
    if (!response.ok() || response->requests_size() != 1) return {};
    return response->requests(0);
  }
  // u0 answers in full: the first token 10 ms after the request, three more in 30 ms.
  void AnswerUnified() {
    clock_.Advance(milliseconds(10));
    Say("generate u0", {10});
    clock_.Advance(milliseconds(30));
    Say("generate u0", {11, 12, 13});
    Finish("generate u0", kLength);
  }
};

const v1::PredictionResidual* Find(const v1::RequestOutcome& outcome, const std::string& term) {
  for (const v1::PredictionResidual& residual : outcome.residuals()) {
    if (residual.term() == term) return &residual;
  }
  return nullptr;
}

TEST_F(ExplainedRequestsTest, AnAnswerCarriesWhatWasPredictedForIt) {
  Submit(Named("a"));
  AnswerUnified();
  ASSERT_TRUE(stream_.end.has_value() && stream_.end->ok());
  const v1::Prediction& predicted = stream_.FinishOf(0).predicted();
  EXPECT_DOUBLE_EQ(predicted.ttft_ms(), 8);
  EXPECT_DOUBLE_EQ(predicted.e2e_ms(), 32);
  EXPECT_DOUBLE_EQ(predicted.queue_ms(), 2);
  EXPECT_DOUBLE_EQ(predicted.decided_ms() + predicted.admission_ms() + predicted.queue_ms() +
                       predicted.prefill_ms(),
                   predicted.ttft_ms());
}

TEST_F(ExplainedRequestsTest, PredictedAndActualTimesAreJoinedPerRequest) {
  Submit(Named("a"));
  EXPECT_FALSE(Explained("a").has_outcome());
  AnswerUnified();
  const v1::RequestExplanation explained = Explained("a");
  ASSERT_EQ(explained.decisions_size(), 1);
  EXPECT_EQ(explained.decisions(0).candidates(0).prefill_worker(), "u0");
  EXPECT_TRUE(explained.decisions(0).candidates(0).cost_is_ms());
  const v1::RequestOutcome& outcome = explained.outcome();
  EXPECT_EQ(outcome.status(), "OK");
  EXPECT_THAT(outcome.not_compared(), IsEmpty());
  EXPECT_EQ(outcome.finish().completion_tokens(), 4);
  ASSERT_NE(Find(outcome, "ttft"), nullptr);
  EXPECT_DOUBLE_EQ(Find(outcome, "ttft")->actual_ms(), 10);
  EXPECT_DOUBLE_EQ(Find(outcome, "ttft")->relative(), -0.2);
  ASSERT_NE(Find(outcome, "e2e"), nullptr);
  EXPECT_DOUBLE_EQ(Find(outcome, "e2e")->actual_ms(), 40);
  const v1::PredictionUse use = router_.Status().predictions();
  EXPECT_EQ(use.decisions(), 1u);
  EXPECT_EQ(use.not_compared(), 0u);
  EXPECT_EQ(use.errors(0).term(), "ttft");
  EXPECT_THAT(use.errors(0).error(), DoubleNear(0.2, 1e-9));
}

TEST_F(ExplainedRequestsTest, AHandOffIsKnownFromItsReportOn) {
  v1::GenerateRequest request = Named("a", v1::ROUTE_DISAGGREGATED);
  request.set_kv_quality("near");
  Submit(request);
  Reserved();
  Say("prefill p0", {10});
  EXPECT_FALSE(Explained("a").has_handoff());
  EXPECT_EQ(Explained("a").kv_quality(), "near");
  Finish("prefill p0", kHandedOff);
  const v1::KvHandoff running = Explained("a").handoff();
  EXPECT_FALSE(Explained("a").has_outcome());
  EXPECT_EQ(running.prefill_worker(), "p0");
  EXPECT_EQ(running.decode_worker(), "d0");
  EXPECT_EQ(running.bytes().raw(), 77u);
  ASSERT_EQ(running.layers_size(), 1);
  EXPECT_EQ(running.layers(0).k_kv_bytes(), 33u);
  Say("decode d0", {11, 12, 13});
  Finish("decode d0", kLength);
  EXPECT_TRUE(Explained("a").has_outcome());
  EXPECT_EQ(Explained("a").handoff().layers_size(), 1);
  v1::ExplainRequest latest;
  latest.set_latest(1);
  const auto list = Explain(latest);
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(list->requests(0).handoff().bytes().raw(), 77u);
  EXPECT_EQ(list->requests(0).handoff().layers_size(), 0) << "lists have no layers";
}

TEST_F(ExplainedRequestsTest, ARequestOnOneWorkerHandsNothingOff) {
  Submit(Named("a"));
  AnswerUnified();
  EXPECT_FALSE(Explained("a").has_handoff());
}

TEST_F(ExplainedRequestsTest, ThePredictionCountsFromTheDecisionThatTookEffect) {
  Submit(Named("a", v1::ROUTE_DISAGGREGATED));
  Join("d1", v1::WORKER_ROLE_DECODE);
  clock_.Advance(milliseconds(5));
  RefuseReservation(ResourceExhausted("no room"));
  ASSERT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  Reserved();
  clock_.Advance(milliseconds(10));
  Say("prefill p0", {10});
  Finish("prefill p0", kHandedOff);
  clock_.Advance(milliseconds(30));
  Say("decode d1", {11, 12, 13});
  Finish("decode d1", kLength);
  const v1::RequestExplanation explained = Explained("a");
  ASSERT_EQ(explained.decisions_size(), 2);
  EXPECT_EQ(explained.decisions(0).cause(), "arrival");
  EXPECT_EQ(explained.decisions(1).cause(), "refused");
  EXPECT_DOUBLE_EQ(explained.decisions(1).decided_ms(), 5);
  ASSERT_NE(Find(explained.outcome(), "ttft"), nullptr) << explained.outcome().not_compared();
  EXPECT_DOUBLE_EQ(Find(explained.outcome(), "ttft")->actual_ms(), 10);
  EXPECT_DOUBLE_EQ(stream_.FinishOf(0).predicted().decided_ms(), 5);
  EXPECT_DOUBLE_EQ(stream_.FinishOf(0).predicted().ttft_ms(), 13) << "from arrival, as measured";
}

TEST_F(ExplainedRequestsTest, ARequestThatLostItsWorkerAfterATokenIsNotCompared) {
  Submit(Named("a", v1::ROUTE_DISAGGREGATED));
  Join("d1", v1::WORKER_ROLE_DECODE);
  Reserved();
  clock_.Advance(milliseconds(10));
  Say("prefill p0", {10});
  Finish("prefill p0", kHandedOff);
  End("decode d0", Unavailable("gone"), kNetwork);
  ASSERT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  Reserved(6);
  Say("prefill p0", {10});
  Finish("prefill p0", kHandedOff);
  Say("decode d1", {11, 12, 13});
  Finish("decode d1", kLength);
  const v1::RequestExplanation explained = Explained("a");
  ASSERT_EQ(explained.decisions_size(), 2);
  EXPECT_EQ(explained.decisions(1).cause(), "resumed");
  EXPECT_EQ(explained.outcome().resumes(), 1);
  EXPECT_THAT(explained.outcome().not_compared(), HasSubstr("before the decision on its workers"));
  EXPECT_THAT(explained.outcome().residuals(), IsEmpty());
  EXPECT_EQ(router_.Status().predictions().not_compared(), 1u);
}

TEST_F(ExplainedRequestsTest, ADecisionThatHadNoEffectIsNotComparedWith) {
  Submit(Named("a", v1::ROUTE_AUTO));
  clock_.Advance(milliseconds(5));
  Leave("u0");  // blocks are asked for at d0 while u0 goes on
  ASSERT_THAT(workers_.Open(), UnorderedElementsAre("generate u0", "reserve d0"));
  RefuseReservation(ResourceExhausted("no room"));
  clock_.Advance(milliseconds(5));
  Say("generate u0", {10});
  Say("generate u0", {11, 12, 13});
  Finish("generate u0", kLength);
  const v1::RequestExplanation explained = Explained("a");
  ASSERT_EQ(explained.decisions_size(), 2);
  ASSERT_NE(Find(explained.outcome(), "ttft"), nullptr) << explained.outcome().not_compared();
  EXPECT_DOUBLE_EQ(Find(explained.outcome(), "ttft")->actual_ms(), 10) << "from arrival";
  EXPECT_DOUBLE_EQ(stream_.FinishOf(0).predicted().decided_ms(), 0);
}

TEST_F(ExplainedRequestsTest, ACancelledRequestKeepsItsDecision) {
  const RequestId id = Submit(Named("a"));
  router_.Cancel(id, Cancelled("the client went away"));
  loop_.RunReady();
  const v1::RequestExplanation explained = Explained("a");
  EXPECT_EQ(explained.outcome().status(), "CANCELLED: the client went away");
  EXPECT_FALSE(explained.outcome().has_finish());
  EXPECT_THAT(explained.outcome().not_compared(), HasSubstr("did not end whole"));
  EXPECT_THAT(router_.Status().predictions().errors(), IsEmpty());
}

TEST_F(ExplainedRequestsTest, OfSeveralChoicesTheLongestIsCompared) {
  v1::GenerateRequest request = Named("a");
  request.set_n(2);
  Submit(request);
  clock_.Advance(milliseconds(10));
  Say("generate u0", {10}, 0);
  Say("generate u0", {10}, 1);
  EndChoice("generate u0", 0, kStop);
  clock_.Advance(milliseconds(30));
  Say("generate u0", {11, 12, 13}, 1);
  EndChoice("generate u0", 1, kLength);
  Close("generate u0", kLength);
  const v1::RequestOutcome outcome = Explained("a").outcome();
  EXPECT_EQ(outcome.finish().completion_tokens(), 4);
  EXPECT_EQ(outcome.finish().index(), 1);
  EXPECT_NE(Find(outcome, "tpot"), nullptr);
}

TEST_F(ExplainedRequestsTest, TheTextOfAStopStringIsNotKept) {
  v1::GenerateRequest request = Named("a");
  request.add_stop("b");
  Submit(request);
  Say("generate u0", {'a', 'b'});
  EndChoice("generate u0", 0, kStop);
  Close("generate u0", kStop);
  EXPECT_EQ(stream_.FinishOf(0).stop(), "b");
  const v1::RequestExplanation explained = Explained("a");
  EXPECT_EQ(explained.outcome().finish().reason(), v1::FINISH_REASON_STOP);
  EXPECT_THAT(explained.outcome().finish().stop(), IsEmpty());
}

TEST_F(ExplainedRequestsTest, UnknownIdsAndWrongRequestsAreRefused) {
  v1::ExplainRequest request;
  request.set_request_id("nobody");
  EXPECT_TRUE(absl::IsNotFound(Explain(request).status()));
  request.set_latest(0);
  EXPECT_TRUE(absl::IsInvalidArgument(Explain(request).status()));
}

class UnpredictedRequestsTest : public ExplainedRequestsTest {
 protected:
  UnpredictedRequestsTest() : ExplainedRequestsTest(NewLeastLoadedPolicy()) {}
};

TEST_F(UnpredictedRequestsTest, WithoutPredictionsTheDecisionAndItsNumbersAreKept) {
  Submit(Named("a", v1::ROUTE_AUTO));
  AnswerUnified();
  EXPECT_FALSE(stream_.FinishOf(0).has_predicted());
  const v1::RequestExplanation explained = Explained("a");
  ASSERT_EQ(explained.decisions_size(), 1);
  EXPECT_EQ(explained.decisions(0).candidates_size(), 2) << "unified, and p0 with d0";
  EXPECT_EQ(explained.decisions(0).candidates(0).features(0).name(), "unified_load");
  EXPECT_THAT(explained.outcome().not_compared(), HasSubstr("predicted nothing"));
}

TEST_F(ExplainedRequestsTest, WhatIsPredictedToMissItsSloIsRefusedBeforeAWorkerIsAsked) {
  v1::GenerateRequest request = Ask();
  request.set_ttft_slo_ms(7);  // of the 8 ms that are predicted, it would wait for 2
  Submit(request);
  ExpectFailed(absl::StatusCode::kResourceExhausted, "TTFT SLO");
  EXPECT_EQ(RetryAfter(*stream_.end), std::chrono::milliseconds(50));
  EXPECT_EQ(router_.Status().admission().shed_slo(), 1);

  request.set_ttft_slo_ms(9);
  RecordingStream in_time;
  const absl::StatusOr<RequestId> id = router_.Submit(request, kNoDeadline, in_time);
  ASSERT_TRUE(id.ok()) << id.status();
  loop_.RunReady();
  EXPECT_THAT(workers_.Open(), testing::SizeIs(1));
  router_.Cancel(*id, absl::CancelledError());
  loop_.RunReady();
}

TEST_F(ExplainedRequestsTest, WhatContinuesElsewhereIsNotRefusedForBeingLate) {
  v1::GenerateRequest request = Ask(v1::ROUTE_AUTO);
  request.set_ttft_slo_ms(9);
  const RequestId id = Submit(request);
  ASSERT_THAT(workers_.Open(), testing::ElementsAre("generate u0"));
  clock_.Advance(std::chrono::milliseconds(100));
  End("generate u0", absl::UnavailableError("it is gone"), CallEnd::Source::kNetwork);
  EXPECT_FALSE(stream_.end.has_value()) << *stream_.end;
  EXPECT_THAT(workers_.Open(), testing::ElementsAre("reserve d0"));
  router_.Cancel(id, absl::CancelledError());
  loop_.RunReady();
}

}  // namespace
}  // namespace tandem::explained_requests_test
