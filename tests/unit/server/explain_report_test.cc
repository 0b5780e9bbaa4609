// What `tandem explain` prints.

#include "server/admin/explain_report.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/admin/stage_bars.h"
#include "server/admin/status_json.h"

namespace tandem::explain_report_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int kColumns = 78;  // 40 of them for bars

void AddResidual(v1::RequestOutcome& outcome, const std::string& term, double predicted,
                 double actual, double relative) {
  v1::PredictionResidual& residual = *outcome.add_residuals();
  residual.set_term(term);
  residual.set_predicted_ms(predicted);
  residual.set_actual_ms(actual);
  residual.set_relative(relative);
}

// In flight, after one decision between two placements.
v1::RequestExplanation Decided() {
  v1::RequestExplanation request;
  request.set_request_id("a");
  request.set_policy("auto");
  request.set_age_ms(1500);
  request.set_prompt_tokens(12);
  request.set_max_tokens(64);
  request.set_sequences(1);
  request.set_ttft_slo_ms(200);
  v1::RoutingDecision& decision = *request.add_decisions();
  decision.set_decided_ms(0.25);
  decision.set_cause("arrival");
  decision.set_expected_output_tokens(20);
  decision.set_placements(2);
  decision.set_margin(3.5);
  decision.set_ttft_interval(0.125);
  v1::PlacementCandidate& chosen = *decision.add_candidates();
  chosen.set_prefill_worker("prefill-0");
  chosen.set_decode_worker("decode-0");
  chosen.set_cost(40.5);
  chosen.set_cost_is_ms(true);
  chosen.mutable_predicted()->set_ttft_ms(10.25);
  chosen.mutable_predicted()->set_e2e_ms(50.25);
  v1::PlacementCandidate& other = *decision.add_candidates();
  other.set_prefill_worker("unified-0");
  other.set_cost(44);
  other.set_cost_is_ms(true);
  other.add_features()->set_name("unified_load");
  return request;
}

v1::RequestExplanation Ended() {
  v1::RequestExplanation request = Decided();
  v1::RequestOutcome& outcome = *request.mutable_outcome();
  outcome.set_status("OK");
  outcome.mutable_finish()->set_prefill_worker("prefill-0");
  outcome.mutable_finish()->set_decode_worker("decode-0");
  outcome.mutable_finish()->set_completion_tokens(20);
  outcome.mutable_finish()->set_tpot_ms(2);
  outcome.mutable_finish()->set_e2e_ms(60);
  outcome.mutable_finish()->mutable_stages()->set_ttft_ms(20);
  outcome.mutable_finish()->mutable_stages()->set_prefill_ms(15);
  AddResidual(outcome, "ttft", 10, 20, -0.5);
  AddResidual(outcome, "prefill", 10, 15, -0.25);
  outcome.mutable_residuals(0)->set_interval_ms(1.25);
  return request;
}

std::vector<std::string> Lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string LineWith(const std::string& text, const std::string& part) {
  for (const std::string& line : Lines(text)) {
    if (line.find(part) != std::string::npos) return line;
  }
  return "";
}

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(ExplainReportTest, TheChosenPlacementIsMarkedAmongTheCandidates) {
  const std::string text = ExplanationText(Decided(), kColumns);
  EXPECT_THAT(text, StartsWith("request a of 1.5 s ago, policy auto, wanted route auto\n"));
  EXPECT_THAT(text, HasSubstr("SLO: TTFT 200 ms, TPOT none"));
  EXPECT_THAT(LineWith(text, "prefill-0 -> decode-0"),
              AllOf(StartsWith("  * "), HasSubstr("40.5 ms"), HasSubstr("10.250")));
  EXPECT_THAT(LineWith(text, "unified-0"), AllOf(StartsWith("    "), HasSubstr("44 ms"),
                                                 HasSubstr(" - "), HasSubstr("unified_load=0")));
  EXPECT_THAT(text, HasSubstr("the best other placement costs 3.5 ms more\n"));
  EXPECT_THAT(text, HasSubstr("stated to be right within: TTFT 12.5%"));
  EXPECT_THAT(text, HasSubstr("still in flight\n"));
}

TEST(ExplainReportTest, AReasonSaysWhyNotTheCheapestWasTaken) {
  v1::RequestExplanation request = Decided();
  EXPECT_THAT(ExplanationText(request, kColumns), Not(HasSubstr("chosen because")));
  request.mutable_decisions(0)->set_reason("within the model's error of 9%");
  request.mutable_decisions(0)->set_chosen(1);
  request.mutable_decisions(0)->set_margin(-3.5);
  const std::string text = ExplanationText(request, kColumns);
  EXPECT_THAT(LineWith(text, "unified-0"), StartsWith("  * "));
  EXPECT_THAT(text, HasSubstr("the best other placement costs 3.5 ms less\n"));
  EXPECT_THAT(text, HasSubstr("chosen because: within the model's error of 9%\n"));
}

TEST(ExplainReportTest, WhatCameTrueStandsBesideThePrediction) {
  const std::string text = ExplanationText(Ended(), kColumns);
  EXPECT_THAT(text, HasSubstr("ended: OK on prefill-0 -> decode-0, 20 output tokens"));
  EXPECT_THAT(LineWith(text, "    ttft"), AllOf(HasSubstr("10.000"), HasSubstr("20.000"),
                                                HasSubstr("-50.0%"), HasSubstr("1.250 out")));
  EXPECT_THAT(text, HasSubstr("to the first token: 20.000 ms from left to right\n"));
  EXPECT_THAT(LineWith(text, "  prefill    predicted"), HasSubstr("10.000 ms |"));
}

TEST(ExplainReportTest, WithoutAPredictionTheActualStagesAreDrawn) {
  v1::RequestExplanation request = Ended();
  request.mutable_outcome()->clear_residuals();
  request.mutable_outcome()->set_not_compared("the routing policy predicted nothing");
  const std::string text = ExplanationText(request, kColumns);
  EXPECT_THAT(text, HasSubstr("no prediction to compare with: the routing policy predicted"));
  EXPECT_EQ(Count(text, "░"), 0);
  EXPECT_EQ(Count(LineWith(text, "  prefill"), "█"), 30) << "15 of 20 ms";
  EXPECT_EQ(Count(LineWith(text, "  other"), "█"), 10);
}

TEST(ExplainReportTest, AFailedRequestHasItsStatus) {
  v1::RequestExplanation request = Decided();
  request.mutable_outcome()->set_status("CANCELLED: the client went away");
  EXPECT_THAT(ExplanationText(request, kColumns),
              HasSubstr("ended: CANCELLED: the client went away\n"));
}

TEST(ExplainReportTest, AListHasOneLinePerRequest) {
  v1::ExplainResponse response;
  *response.add_requests() = Ended();
  *response.add_requests() = Decided();
  response.mutable_requests(1)->set_request_id("b");
  const std::string list = ExplanationList(response);
  ASSERT_EQ(Lines(list).size(), 3u);
  EXPECT_THAT(Lines(list)[1], AllOf(StartsWith("a "), HasSubstr(" 20.000 "), HasSubstr(" 10.250 "),
                                    HasSubstr(" 60.000 "), HasSubstr("OK")));
  EXPECT_THAT(Lines(list)[2], AllOf(StartsWith("b "), HasSubstr("in flight")));
}

TEST(ExplainReportTest, JsonHasNullForWhatIsNotKnown) {
  v1::ExplainResponse response;
  *response.add_requests() = Decided();
  const auto json = ParseJson(ExplanationJson(response))["requests"][0];
  EXPECT_EQ(json["request_id"], "a");
  EXPECT_EQ(json["wanted"], "auto");
  EXPECT_EQ(json["outcome"], nullptr);
  EXPECT_EQ(json["decisions"][0]["margin"], 3.5);
  EXPECT_EQ(json["decisions"][0]["candidates"][0]["predicted"]["ttft_ms"], 10.25);
  EXPECT_EQ(json["decisions"][0]["candidates"][1]["predicted"], nullptr);
  *response.mutable_requests(0) = Ended();
  response.mutable_requests(0)->mutable_outcome()->mutable_finish()->set_reason(
      v1::FINISH_REASON_LENGTH);
  const auto ended = ParseJson(ExplanationJson(response))["requests"][0];
  EXPECT_EQ(ended["outcome"]["finish"]["reason"], "length");
  EXPECT_EQ(ended["outcome"]["residuals"][0]["relative"], -0.5);
}

TEST(StageBarsTest, AStageBeginsWhereTheOneBeforeItEnded) {
  const StageBar stages[] = {{.name = "queue", .predicted_ms = 10, .actual_ms = 20},
                             {.name = "prefill", .predicted_ms = 10, .actual_ms = 20}};
  const std::vector<std::string> lines = Lines(DrawBars("title", stages, kColumns));
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0], "title: 40.000 ms from left to right");
  const auto bar = [](const std::string& line) { return line.substr(line.find('|') + 1); };
  const auto repeat = [](const std::string& cell, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += cell;
    return text;
  };
  EXPECT_EQ(bar(lines[1]), repeat("░", 10));
  EXPECT_EQ(bar(lines[2]), repeat("█", 20));
  EXPECT_EQ(bar(lines[3]), std::string(10, ' ') + repeat("░", 10));
  EXPECT_EQ(bar(lines[4]), std::string(20, ' ') + repeat("█", 20));
}

TEST(StageBarsTest, AShortStageIsSeenAndOneOfNoTimeIsNot) {
  const StageBar stages[] = {{.name = "queue", .actual_ms = 0},
                             {.name = "prefill", .actual_ms = 0.001},
                             {.name = "other", .actual_ms = 100}};
  const std::vector<std::string> lines = Lines(DrawBars("title", stages, kColumns));
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(Count(lines[1], "█"), 0);
  EXPECT_EQ(Count(lines[2], "█"), 1);
  EXPECT_EQ(Count(lines[3], "█"), 40);
}

TEST(StageBarsTest, WithoutAnyTimeThereIsNoPicture) {
  const StageBar stages[] = {{.name = "queue", .actual_ms = 0}};
  EXPECT_THAT(DrawBars("title", stages, kColumns), IsEmpty());
}

}  // namespace
}  // namespace tandem::explain_report_test
