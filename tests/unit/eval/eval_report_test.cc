#include "server/eval/eval_report.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/eval/eval_run.h"

namespace tandem::eval_report_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

WindowResult Window(const std::string& name, double perplexity, double kl, uint64_t wire) {
  WindowResult window{.name = name,
                      .change = {.baseline_perplexity = 10,
                                 .perplexity = perplexity,
                                 .top1_agreement = 1 - kl,
                                 .kl_nats = kl},
                      .baseline_route = v1::ROUTE_UNIFIED,
                      .route = v1::ROUTE_DISAGGREGATED,
                      .kv = {}};
  window.kv.set_raw(1000);
  window.kv.set_wire(wire);
  window.kv.set_codec("f3");
  return window;
}

EvalResult Result() {
  return {.subject = {.model = "<sample>",
                      .baseline = {.router = "here:1", .route = v1::ROUTE_UNIFIED},
                      .tested = {.router = "there:2", .route = v1::ROUTE_DISAGGREGATED},
                      .plan = {.prompt_tokens = 100, .output_tokens = 20, .count = 3},
                      .num_logprobs = 5},
          .windows = {Window("a#1", 10, 0.01, 500), Window("a#2", 11, 0.03, 400),
                      Window("b#1", 9, 0.02, 800)}};
}

EvalResult PlantedResult(PlantedQuestion question) {
  EvalResult result = Result();
  result.subject.planted = question;
  for (WindowResult& window : result.windows) window.baseline_found = window.found = true;
  result.windows[1].found = false;
  return result;
}

const Measure& MeasureOf(std::string_view key) {
  static const EvalSubject subject = {.planted = PlantedQuestion::kKnown};
  return *std::ranges::find(MeasuresOf(subject), key, &Measure::key);
}

TEST(TotalOfTest, IsTheMeanWithItsErrorAndTheWorst) {
  const EvalResult result = Result();
  const auto kl = TotalOf(MeasureOf("kl_nats"), result.windows);
  ASSERT_TRUE(kl.has_value());
  EXPECT_NEAR(kl->mean, 0.02, 1e-12);
  EXPECT_NEAR(*kl->standard_error, 0.01 / std::sqrt(3.0), 1e-12);
  EXPECT_EQ(kl->worst, 0.03);
  EXPECT_EQ(kl->worst_window, 1u);
  const auto agreement = TotalOf(MeasureOf("top1_agreement"), result.windows);
  EXPECT_EQ(agreement->worst_window, 1u) << "the lowest is the worst";
  const auto ratio = TotalOf(MeasureOf("kv_raw_over_wire"), result.windows);
  EXPECT_EQ(ratio->worst, 1.25);
  EXPECT_EQ(ratio->worst_window, 2u);
  const auto change = TotalOf(MeasureOf("perplexity_change_percent"), result.windows);
  EXPECT_NEAR(change->worst, 10, 1e-9);
}

TEST(TotalOfTest, OneWindowHasNoErrorAndKvThatDidNotMoveNoRatio) {
  EvalResult result = Result();
  result.windows.resize(1);
  EXPECT_FALSE(TotalOf(MeasureOf("kl_nats"), result.windows)->standard_error.has_value());
  result.windows[0].kv.Clear();
  EXPECT_FALSE(TotalOf(MeasureOf("kv_raw_over_wire"), result.windows).has_value());
  EXPECT_THAT(EvalTables(result), HasSubstr("moved no KV"));
  EXPECT_EQ(ParseJson(EvalJson(result))["windows"][0]["kv_raw_over_wire"], nullptr);
}

TEST(EvalReportTest, JsonHasEveryNumberAndWhatItIsOf) {
  const Json json = ParseJson(EvalJson(Result()));
  EXPECT_EQ(json["format"], "tandem-eval");
  EXPECT_EQ(json["baseline"]["router"], "here:1");
  EXPECT_EQ(json["baseline"]["route"], "unified");
  EXPECT_EQ(json["tested"]["route"], "disaggregated");
  EXPECT_EQ(json["output_tokens"], 20);
  ASSERT_EQ(json["windows"].size(), 3u);
  EXPECT_EQ(json["windows"][1]["name"], "a#2");
  EXPECT_EQ(json["windows"][1]["kv_raw_over_wire"], 2.5);
  EXPECT_EQ(json["windows"][1]["kv_codec"], "f3");
  EXPECT_EQ(json["windows"][1]["perplexity"], 11);
  for (const Measure& measure : MeasuresOf(Result().subject)) {
    EXPECT_TRUE(json["totals"].contains(std::string(measure.key))) << measure.key;
    EXPECT_TRUE(json["windows"][0].contains(std::string(measure.key))) << measure.key;
  }
  EXPECT_EQ(json["totals"]["kl_nats"]["worst_window"], "a#2");
}

TEST(EvalReportTest, TheTablesSayWhatWasComparedAndWhatTheNumbersAre) {
  const std::string tables = EvalTables(Result());
  EXPECT_THAT(tables, HasSubstr("route disaggregated of there:2 against route unified of here:1"));
  EXPECT_THAT(tables, HasSubstr("3 windows of 100 + 20 tokens"));
  EXPECT_THAT(tables, HasSubstr("KL divergence, at least (nats)         0.0200000"));
  EXPECT_THAT(tables, HasSubstr("KV moved with codec f3"));
  EXPECT_THAT(tables, HasSubstr("at least as large"));
}

TEST(EvalReportTest, PlantedFactsAreCountedInEveryReport) {
  const EvalResult result = PlantedResult(PlantedQuestion::kLater);
  const Json json = ParseJson(EvalJson(result));
  EXPECT_EQ(json["planted"], "later");
  EXPECT_FALSE(json.contains("output_tokens"));
  EXPECT_EQ(json["totals"]["baseline_found"]["mean"], 1);
  EXPECT_NEAR(json["totals"]["found"]["mean"], 2.0 / 3, 1e-12);
  EXPECT_EQ(json["totals"]["found"]["worst_window"], "a#2");
  EXPECT_EQ(json["windows"][0]["found"], 1);
  EXPECT_EQ(json["windows"][1]["found"], 0);
  EXPECT_EQ(json["windows"][1]["baseline_found"], 1);
  for (const std::string& text : {EvalTables(result), EvalPage(result)}) {
    EXPECT_THAT(text, HasSubstr("100 tokens with a planted fact, asked for after the prompt"));
    EXPECT_THAT(text, HasSubstr("planted fact found, baseline              1.0000"));
    EXPECT_THAT(text, HasSubstr("planted fact found, tested                0.6667"));
  }
  const EvalResult known = PlantedResult(PlantedQuestion::kKnown);
  EXPECT_EQ(ParseJson(EvalJson(known))["planted"], "known");
  EXPECT_THAT(EvalTables(known), HasSubstr("asked for at the end of the prompt"));
}

TEST(EvalReportTest, WithoutPlantedFactsNoReportNamesThem) {
  for (const std::string& text : {EvalTables(Result()), EvalJson(Result()), EvalPage(Result())}) {
    EXPECT_THAT(text, Not(HasSubstr("found")));
    EXPECT_THAT(text, Not(HasSubstr("planted")));
  }
}

TEST(EvalReportTest, ThePageNeedsNothingElse) {
  const std::string page = EvalPage(Result());
  EXPECT_THAT(page, HasSubstr("<svg"));
  EXPECT_THAT(page, HasSubstr("KV bytes / bytes on the wire"));
  EXPECT_THAT(page, HasSubstr("&lt;sample&gt;"));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("http")));
  EXPECT_THAT(page, Not(HasSubstr("nan")));
}

TEST(ForcedRequestTest, HasTheWindowAndTheWayItIsServed) {
  const EvalWindow window = {.name = "a#1", .prompt = {1, 2}, .output = {3, 4, 5}};
  const v1::GenerateRequest request =
      ForcedRequest(window, {.router = "there:2", .route = v1::ROUTE_DISAGGREGATED}, 20, "salt");
  EXPECT_THAT(request.token_ids().ids(), ElementsAre(1, 2));
  EXPECT_THAT(request.forced_token_ids(), ElementsAre(3, 4, 5));
  EXPECT_EQ(request.sampling().logprobs(), 20);
  EXPECT_EQ(request.route(), v1::ROUTE_DISAGGREGATED);
  EXPECT_EQ(request.cache_salt(), "salt");
  EXPECT_FALSE(request.has_max_tokens());
}

}  // namespace
}  // namespace tandem::eval_report_test
