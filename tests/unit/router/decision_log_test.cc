#include "router/explain/decision_log.h"

#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"

namespace tandem::decision_log_test {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DecisionLogTest : public testing::Test {
 protected:
  RequestSpec Spec(uint64_t number, const std::string& id) const {
    RequestSpec spec;
    spec.id = id;
    spec.sequence.set_request_id(number);
    spec.received = clock_.Now();
    return spec;
  }
  static RouteDecision To(const std::string& worker) {
    RouteDecision decision;
    decision.prefill = {worker, 1};
    decision.score.cost = 5;
    decision.score.features = {{"unified_load", 5}};
    decision.considered = {decision};
    decision.placements = 1;
    return decision;
  }
  static RouteQuery Query() {
    return {.prompt_tokens = 3, .context_tokens = 10, .expected_output_tokens = 7};
  }
  void Add(DecisionLog& log, const RequestSpec& spec, const std::string& worker,
           DecisionCause cause = DecisionCause::kArrival) const {
    log.Add(spec, Query(), cause, To(worker), clock_.Now());
  }
  static v1::ExplainRequest Of(const std::string& id) {
    v1::ExplainRequest request;
    request.set_request_id(id);
    return request;
  }
  static v1::ExplainRequest Latest(int32_t n) {
    v1::ExplainRequest request;
    request.set_latest(n);
    return request;
  }
  // The only request that is returned.
  v1::RequestExplanation Explained(const DecisionLog& log, const std::string& id) const {
    const auto response = log.Explain(Of(id), clock_.Now());
    EXPECT_TRUE(response.ok()) << response.status();
    if (!response.ok() || response->requests_size() != 1) return {};
    return response->requests(0);
  }

  FakeClock clock_;
  PredictionBook book_;
};

TEST_F(DecisionLogTest, ADecisionIsExplainedWithWhatWasAskedAndConsidered) {
  DecisionLog log("least-loaded", book_);
  const RequestSpec spec = Spec(1, "a");
  clock_.Advance(milliseconds(2));
  Add(log, spec, "u0");
  clock_.Advance(milliseconds(40));
  const v1::RequestExplanation explained = Explained(log, "a");
  EXPECT_EQ(explained.request_id(), "a");
  EXPECT_EQ(explained.policy(), "least-loaded");
  EXPECT_EQ(explained.age_ms(), 42);
  EXPECT_EQ(explained.prompt_tokens(), 3);
  EXPECT_EQ(explained.max_tokens(), 7);
  ASSERT_EQ(explained.decisions_size(), 1);
  const v1::RoutingDecision& decision = explained.decisions(0);
  EXPECT_EQ(decision.decided_ms(), 2);
  EXPECT_EQ(decision.cause(), "arrival");
  ASSERT_EQ(decision.candidates_size(), 1);
  EXPECT_EQ(decision.candidates(0).prefill_worker(), "u0");
  EXPECT_EQ(decision.candidates(0).cost(), 5);
  EXPECT_EQ(decision.candidates(0).features(0).name(), "unified_load");
  EXPECT_FALSE(decision.candidates(0).has_predicted());
  EXPECT_FALSE(decision.has_margin()) << "there was no other candidate";
  EXPECT_FALSE(explained.has_outcome()) << "it is in flight";
}

TEST_F(DecisionLogTest, TheMarginIsWhatTheBestOtherPlacementCostsMore) {
  DecisionLog log("auto", book_);
  RouteDecision decision = To("u0");
  for (const auto& [worker, cost] : {std::pair("u1", 9.0), std::pair("u2", 12.0)}) {
    decision.considered.push_back(To(worker));
    decision.considered.back().score.cost = cost;
  }
  log.Add(Spec(1, "a"), Query(), DecisionCause::kArrival, decision, clock_.Now());
  static_cast<ScoredPlacement&>(decision) = decision.considered[1];
  log.Add(Spec(2, "b"), Query(), DecisionCause::kArrival, decision, clock_.Now());
  EXPECT_EQ(Explained(log, "a").decisions(0).margin(), 4);
  EXPECT_EQ(Explained(log, "a").decisions(0).chosen(), 0);
  EXPECT_EQ(Explained(log, "b").decisions(0).margin(), -4) << "not the cheapest was chosen";
  EXPECT_EQ(Explained(log, "b").decisions(0).chosen(), 1);
}

TEST_F(DecisionLogTest, TheOldestRequestMakesRoom) {
  DecisionLog log("least-loaded", book_, {.requests = 3});
  for (uint64_t i = 0; i < 5; ++i) Add(log, Spec(i, "r" + std::to_string(i)), "u0");
  EXPECT_EQ(log.Use().kept_requests(), 3);
  EXPECT_EQ(log.Use().decisions(), 5u);
  EXPECT_EQ(Explained(log, "r2").request_id(), "r2");
  const auto gone = log.Explain(Of("r1"), clock_.Now());
  EXPECT_TRUE(absl::IsNotFound(gone.status()));
  EXPECT_THAT(std::string(gone.status().message()), HasSubstr("request_id=r1"));
  EXPECT_THAT(std::string(gone.status().message()), HasSubstr("the latest 3 requests"));
  log.End(Spec(1, "r1"), {.status = absl::OkStatus()});
  EXPECT_EQ(log.PredictionFor(Spec(1, "r1"), {}), std::nullopt);
}

TEST_F(DecisionLogTest, MemoryIsBoundedByItsBytesAsWell) {
  DecisionLog one("least-loaded", book_);
  Add(one, Spec(1, "r"), "u0");
  const uint64_t bytes_of_one = one.Use().kept_bytes();
  EXPECT_GT(bytes_of_one, sizeof(DecisionRecord));
  const size_t limit = 10 * bytes_of_one;
  DecisionLog log("least-loaded", book_, {.bytes = limit});
  for (uint64_t i = 0; i < 100; ++i) {
    Add(log, Spec(i, "r"), "u0");
    ASSERT_LE(log.Use().kept_bytes(), limit);
  }
  EXPECT_EQ(log.Use().kept_requests(), 10);
  // A single record that is larger than all of the memory.
  DecisionLog none("least-loaded", book_, {.bytes = 1});
  Add(none, Spec(1, "r"), "u0");
  EXPECT_EQ(none.Use().kept_requests(), 0);
  EXPECT_EQ(none.Use().kept_bytes(), 0u);
}

TEST_F(DecisionLogTest, OfSeveralRequestsWithOneIdTheLatestIsExplained) {
  DecisionLog log("least-loaded", book_, {.requests = 2});
  Add(log, Spec(1, "same"), "u0");
  Add(log, Spec(2, "same"), "u1");
  EXPECT_EQ(Explained(log, "same").decisions(0).candidates(0).prefill_worker(), "u1");
  Add(log, Spec(3, "other"), "u0");
  EXPECT_EQ(Explained(log, "same").decisions(0).candidates(0).prefill_worker(), "u1")
      << "the older one has gone, not this";
  Add(log, Spec(4, "other"), "u0");
  EXPECT_TRUE(absl::IsNotFound(log.Explain(Of("same"), clock_.Now()).status()));
}

TEST_F(DecisionLogTest, TheFirstDecisionAndTheLatestOnesAreKept) {
  DecisionLog log("least-loaded", book_);
  const RequestSpec spec = Spec(1, "a");
  Add(log, spec, "u0");
  for (int i = 1; i < 20; ++i) Add(log, spec, "u" + std::to_string(i), DecisionCause::kRefused);
  const v1::RequestExplanation explained = Explained(log, "a");
  ASSERT_EQ(static_cast<size_t>(explained.decisions_size()), DecisionLog::kMaxDecisions);
  EXPECT_EQ(explained.decisions_left_out(), 12);
  EXPECT_EQ(explained.decisions(0).candidates(0).prefill_worker(), "u0");
  EXPECT_EQ(explained.decisions(1).candidates(0).prefill_worker(), "u13");
  EXPECT_EQ(explained.decisions(7).candidates(0).prefill_worker(), "u19");
  EXPECT_EQ(explained.decisions(7).cause(), "refused");
}

TEST_F(DecisionLogTest, TheLatestRequestsComeFirst) {
  DecisionLog log("least-loaded", book_);
  for (uint64_t i = 0; i < 5; ++i) Add(log, Spec(i, "r" + std::to_string(i)), "u0");
  const auto response = log.Explain(Latest(3), clock_.Now());
  ASSERT_TRUE(response.ok());
  std::vector<std::string> ids;
  for (const auto& request : response->requests()) ids.push_back(request.request_id());
  EXPECT_THAT(ids, ElementsAre("r4", "r3", "r2"));
  EXPECT_EQ(log.Explain(Latest(100), clock_.Now())->requests_size(), 5);
}

TEST_F(DecisionLogTest, AnEndThatCannotBeComparedIsCounted) {
  DecisionLog log("least-loaded", book_);
  const RequestSpec spec = Spec(1, "a");
  Add(log, spec, "u0");
  log.End(spec, {.status = Cancelled("the client went away")});
  const v1::RequestExplanation explained = Explained(log, "a");
  EXPECT_EQ(explained.outcome().status(), "CANCELLED: the client went away");
  EXPECT_THAT(explained.outcome().not_compared(), HasSubstr("predicted nothing"));
  EXPECT_EQ(log.Use().not_compared(), 1u);
}

TEST(ValidateExplainTest, NamesTheFieldAtFault) {
  const auto message = [](const v1::ExplainRequest& request) {
    const absl::Status status = ValidateExplain(request);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  v1::ExplainRequest request;
  EXPECT_THAT(message(request), HasSubstr("request_id is empty"));
  request.set_request_id(std::string(129, 'a'));
  EXPECT_THAT(message(request), HasSubstr("request_id has 129 bytes"));
  request.set_request_id("a b");
  EXPECT_THAT(message(request), HasSubstr("printable ASCII"));
  request.set_latest(0);
  EXPECT_THAT(message(request), HasSubstr("latest=0 must be in [1, 256]"));
  request.set_latest(257);
  EXPECT_THAT(message(request), HasSubstr("latest=257"));
  request.set_latest(256);
  EXPECT_TRUE(ValidateExplain(request).ok());
}

}  // namespace
}  // namespace tandem::decision_log_test
