#include "router/explain/prediction_comparison.h"

#include <functional>

#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::prediction_comparison_test {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Of four tokens: TTFT 10 ms (1 admission, 2 queue, 7 prefill), 5 ms of transfer, 30 ms of decode.
PlacementPrediction Predicted() {
  PlacementPrediction prediction;
  prediction.stages = {.admission = ModelTime(1),
                       .queue = ModelTime(2),
                       .prefill = ModelTime(7),
                       .transfer = ModelTime(5),
                       .decode = ModelTime(30)};
  prediction.ttft = ModelTime(10);
  prediction.tpot = ModelTime(35.0 / 3);
  prediction.e2e = ModelTime(45);
  return prediction;
}

Decision Disaggregated() {
  Decision decision{.at = milliseconds(3), .expected_output_tokens = 4, .route = {}};
  decision.route.route = v1::ROUTE_DISAGGREGATED;
  decision.route.prefill = {"p0", 1};
  decision.route.decode = {"d0", 1};
  decision.route.score.prediction = Predicted();
  decision.stated.fill(0.5);
  return decision;
}

Decision Unified() {
  Decision decision = Disaggregated();
  decision.route.route = v1::ROUTE_UNIFIED;
  decision.route.prefill = {"u0", 1};
  decision.route.decode = {};
  return decision;
}

// Four tokens, the first one 23 ms after arrival: 20 ms after the decision.
RequestEnd Ended(const std::string& prefill = "p0", const std::string& decode = "d0",
                 int32_t tokens = 4) {
  v1::ChoiceFinish finish;
  finish.set_prefill_worker(prefill);
  finish.set_decode_worker(decode);
  finish.set_completion_tokens(tokens);
  finish.set_tpot_ms(tokens > 1 ? 10 : 0);
  finish.set_e2e_ms(53);
  finish.mutable_stages()->set_ttft_ms(23);
  finish.mutable_stages()->set_queue_ms(4);
  finish.mutable_stages()->set_prefill_ms(7);
  finish.mutable_stages()->set_transfer_ms(0.5);
  finish.mutable_stages()->set_first_token_ms(0.5);
  finish.mutable_kv_bytes()->set_exposed_ms(6);
  return {.status = absl::OkStatus(), .finish = finish, .admission = milliseconds(2)};
}

const Residual* Find(const Comparison& comparison, PredictionTerm term) {
  for (const Residual& residual : comparison.residuals) {
    if (residual.term == term) return &residual;
  }
  return nullptr;
}

void Expect(const Comparison& comparison, PredictionTerm term, double predicted, double actual,
            double relative) {
  const Residual* const residual = Find(comparison, term);
  ASSERT_NE(residual, nullptr) << static_cast<int>(term);
  EXPECT_DOUBLE_EQ(residual->predicted_ms, predicted) << static_cast<int>(term);
  EXPECT_DOUBLE_EQ(residual->actual_ms, actual) << static_cast<int>(term);
  EXPECT_DOUBLE_EQ(residual->relative, relative) << static_cast<int>(term);
}

TEST(PredictionComparisonTest, TermsAreComparedFromTheDecisionOn) {
  const Comparison comparison = Compare(Disaggregated(), Ended());
  EXPECT_THAT(comparison.not_compared, IsEmpty());
  EXPECT_EQ(comparison.residuals.size(), kNumPredictionTerms);
  Expect(comparison, PredictionTerm::kTtft, 10, 20, -0.5);
  Expect(comparison, PredictionTerm::kE2e, 45, 50, -0.1);
  Expect(comparison, PredictionTerm::kTpot, 35.0 / 3, 10, (35.0 / 3 - 10) / 10);
}

TEST(PredictionComparisonTest, AStageIsRelatedToTheTimeThatItIsPartOf) {
  const Comparison comparison = Compare(Disaggregated(), Ended());
  Expect(comparison, PredictionTerm::kAdmission, 1, 2, -1.0 / 20);
  Expect(comparison, PredictionTerm::kQueue, 2, 4, -2.0 / 20);
  Expect(comparison, PredictionTerm::kPrefill, 7, 8, -1.0 / 20);
  Expect(comparison, PredictionTerm::kTransfer, 5, 6, -1.0 / 50);
  Expect(comparison, PredictionTerm::kDecode, 30, 24, 6.0 / 50);
}

// What is left of the TTFT without the stages of workers, and without what came before the
// decision.
TEST(PredictionComparisonTest, MessagesAreTheRestOfTheTimeToTheFirstToken) {
  RequestEnd end = Ended();
  end.finish->mutable_stages()->set_reserve_ms(1);
  end.finish->mutable_stages()->set_residual_ms(8);
  Decision decision = Disaggregated();
  decision.route.score.prediction->stages.messages = ModelTime(2);
  Expect(Compare(decision, end), PredictionTerm::kMessages, 2, 6, -4.0 / 20);
  end.resumes = 1;
  EXPECT_EQ(Find(Compare(decision, end), PredictionTerm::kMessages), nullptr)
      << "the rest has the time of the attempt that failed";
  end.resumes = 0;
  decision.cause = DecisionCause::kRefused;
  EXPECT_EQ(Find(Compare(decision, end), PredictionTerm::kMessages), nullptr);
}

TEST(PredictionComparisonTest, AHandOffIsWhatTheBytesDoNotExplainOfTheTransfer) {
  Decision decision = Disaggregated();
  decision.route.score.prediction->hand_off = ModelTime(2);  // and 3 ms for the bytes
  RequestEnd end = Ended();
  Expect(Compare(decision, end), PredictionTerm::kHandOff, 2, 3, -1.0 / 50);
  EXPECT_EQ(Find(Compare(Unified(), Ended("u0", "u0")), PredictionTerm::kHandOff), nullptr);
  end.resumes = 1;
  EXPECT_EQ(Find(Compare(decision, end), PredictionTerm::kHandOff), nullptr);
}

TEST(PredictionComparisonTest, DecodeIsScaledToTheTokensThatCame) {
  const Comparison comparison = Compare(Disaggregated(), Ended("p0", "d0", 2));
  Expect(comparison, PredictionTerm::kDecode, 10, 4, 6.0 / 50);
  Expect(comparison, PredictionTerm::kE2e, 25, 50, -0.5);
  Expect(comparison, PredictionTerm::kTpot, 15, 10, 0.5);
}

TEST(PredictionComparisonTest, AUnifiedPlacementHasNoTransferAndNoAdmission) {
  const Comparison comparison = Compare(Unified(), Ended("u0", "u0"));
  EXPECT_EQ(Find(comparison, PredictionTerm::kTransfer), nullptr);
  EXPECT_EQ(Find(comparison, PredictionTerm::kAdmission), nullptr);
  EXPECT_NE(Find(comparison, PredictionTerm::kDecode), nullptr);
}

TEST(PredictionComparisonTest, OneTokenIsNotDecoded) {
  const Comparison comparison = Compare(Disaggregated(), Ended("p0", "d0", 1));
  EXPECT_EQ(Find(comparison, PredictionTerm::kTpot), nullptr);
  EXPECT_EQ(Find(comparison, PredictionTerm::kDecode), nullptr);
  Expect(comparison, PredictionTerm::kE2e, 10, 50, -0.8);
}

TEST(PredictionComparisonTest, WithoutAPredictedDecodeOnlyTheFirstTokenIsCompared) {
  Decision decision = Disaggregated();
  decision.expected_output_tokens = 1;
  const Comparison comparison = Compare(decision, Ended());
  EXPECT_NE(Find(comparison, PredictionTerm::kTtft), nullptr);
  EXPECT_NE(Find(comparison, PredictionTerm::kQueue), nullptr);
  EXPECT_EQ(Find(comparison, PredictionTerm::kE2e), nullptr);
  EXPECT_EQ(Find(comparison, PredictionTerm::kTpot), nullptr);
}

TEST(PredictionComparisonTest, AnIntervalIsAsWideAsStatedAroundThePrediction) {
  Decision decision = Disaggregated();
  const auto is_inside = [&decision](PredictionTerm term, double stated) {
    decision.stated[static_cast<size_t>(term)] = stated;
    return Find(Compare(decision, Ended()), term)->IsInside();
  };
  // 10 ms were predicted and 20 ms came true; of the queue 2 ms and 4 ms.
  EXPECT_TRUE(is_inside(PredictionTerm::kTtft, 1.0));
  EXPECT_FALSE(is_inside(PredictionTerm::kTtft, 0.99));
  EXPECT_TRUE(is_inside(PredictionTerm::kQueue, 0.2)) << "a part of the predicted TTFT";
  EXPECT_FALSE(is_inside(PredictionTerm::kQueue, 0.19));
  EXPECT_FALSE(is_inside(PredictionTerm::kTtft, 0)) << "nothing was stated";
}

TEST(PredictionComparisonTest, WhatCannotBeComparedSaysWhy) {
  struct Case {
    std::function<void(Decision&, RequestEnd&)> change;
    const char* why;
  };
  const Case cases[] = {
      {[](Decision& decision, RequestEnd&) { decision.route.score.prediction.reset(); },
       "predicted nothing"},
      {[](Decision&, RequestEnd& end) { end.status = Cancelled("the client went away"); },
       "did not end whole"},
      {[](Decision&, RequestEnd& end) { end.finish.reset(); }, "no choice"},
      {[](Decision&, RequestEnd& end) { end.sent_whole = true; }, "in one piece"},
      {[](Decision& decision, RequestEnd&) { decision.route.decode.name = "d1"; },
       "no kept decision"},
      {[](Decision& decision, RequestEnd&) { decision.route.prefill.name = "p1"; },
       "no kept decision"},
      {[](Decision& decision, RequestEnd&) { decision.at = milliseconds(23); },
       "before the decision"}};
  for (const Case& one : cases) {
    Decision decision = Disaggregated();
    RequestEnd end = Ended();
    one.change(decision, end);
    const Comparison comparison = Compare(decision, end);
    EXPECT_THAT(comparison.residuals, IsEmpty()) << one.why;
    EXPECT_THAT(comparison.not_compared, HasSubstr(one.why));
  }
}

}  // namespace
}  // namespace tandem::prediction_comparison_test
