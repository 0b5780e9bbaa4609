#include "bench/serving/report.h"

#include <limits>
#include <string>
#include <vector>

#include "base/json.h"
#include "bench/serving/report_html.h"
#include "bench/serving/report_json.h"
#include "bench/serving/report_text.h"
#include "bench/serving/svg_plot.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace tandem::loadgen::report_test {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

RunResult FiveRequests() {
  RunResult run;
  for (int i = 0; i < 5; ++i) {
    RequestRecord record;
    record.id = "bench-" + std::to_string(i);
    record.prompt_tokens = 10;
    record.wanted_tokens = 2;
    record.scheduled = record.due = record.sent = milliseconds(100 * i);
    record.chunks = {{record.sent + milliseconds(20), 1}, {record.sent + milliseconds(30), 1}};
    record.ended = record.sent + milliseconds(30);
    record.end = {.whole = true, .finish_reason = "length", .output_tokens = 2};
    record.end.stages = ServerStages{.ttft = 18, .queue = 3, .prefill = 15};
    run.records.push_back(record);
  }
  run.records[4].end.status = absl::UnavailableError("worker <lost>");
  run.length = milliseconds(430);
  run.peak_concurrency = 1;
  return run;
}

const RunDescription kDescription = {.backend = "tandem",
                                     .model = "m & m",
                                     .label = "test",
                                     .arrivals = "constant",
                                     .request_rate = 10,
                                     .num_prompts = 5,
                                     .seed = 7,
                                     .schedule_hash = "0123456789abcdef",
                                     .metadata = {"commit=abc"}};
const SummaryOptions kOptions = {.objectives = {.ttft = 100}};

TEST(TextReportTest, HasTheLinesThatUsersOfVllmBenchServeKnow) {
  const std::string text = TextReport(kDescription, Summarize(FiveRequests(), kOptions), {});
  for (const char* line : {"============ Serving Benchmark Result ============\n",
                           "Successful requests:                     4         \n",
                           "Failed requests:                         1         \n",
                           "Request rate configured (RPS):           10.00     \n",
                           "Benchmark duration (s):                  0.43      \n",
                           "Total input tokens:                      40        \n",
                           "Total generated tokens:                  8         \n",
                           "Request throughput (req/s):              9.30      \n",
                           "Request goodput (req/s):                 9.30      \n",
                           "Output token throughput (tok/s):         18.60     \n",
                           "Peak output token throughput (tok/s):    10.00     \n",
                           "Peak concurrent requests:                1         \n",
                           "Total token throughput (tok/s):          111.63    \n",
                           "---------------Time to First Token----------------\n",
                           "Mean TTFT (ms):                          20.00     \n",
                           "Median TTFT (ms):                        20.00     \n",
                           "P99 TTFT (ms):                           20.00     \n",
                           "-----Time per Output Token (excl. 1st token)------\n",
                           "Mean TPOT (ms):                          10.00     \n",
                           "---------------Inter-token Latency----------------\n",
                           "----------------End-to-end Latency----------------\n",
                           "P99.9 E2EL (ms):                         30.00     \n",
                           "Schedule hash:                           0123456789abcdef\n",
                           "Requests whose stages do not add up:     0         \n",
                           "P99 lag (ms):                            0.00      \n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, Not(HasSubstr("Predicted")));
  EXPECT_THAT(text, Not(HasSubstr("Inter-chunk"))) << "every message has one token";
}

TEST(TextReportTest, PredictionsHaveATableWhereTheServerMakesThem) {
  RunResult run = FiveRequests();
  run.records[0].end.predicted = PredictedLatency{.ttft = 25};
  const std::string text = TextReport(kDescription, Summarize(run, kOptions), {});
  EXPECT_THAT(text, HasSubstr("Predicted and Actual"));
  EXPECT_THAT(text, HasSubstr("TTFT            1         25.00      20.00        25.0"));
}

TEST(ReportChoiceTest, ChoosesMetricsAndPercentiles) {
  const auto choice = ParseReportChoice("ttft,e2el", "50,99.5");
  ASSERT_TRUE(choice.ok()) << choice.status();
  const std::string text = TextReport(kDescription, Summarize(FiveRequests(), kOptions), *choice);
  EXPECT_THAT(text, HasSubstr("P99.5 TTFT (ms)"));
  EXPECT_THAT(text, HasSubstr("P50 E2EL (ms)"));
  EXPECT_THAT(text, Not(HasSubstr("TPOT")));
  EXPECT_THAT(text, Not(HasSubstr("P90")));
  EXPECT_FALSE(ParseReportChoice("ttft,speed", "50").ok());
  for (const char* percentiles : {"0", "100", "-1", "nan", "", "50,,60"}) {
    EXPECT_FALSE(ParseReportChoice("ttft", percentiles).ok()) << percentiles;
  }
}

constexpr const char* kKeys[] = {"date",
                                 "endpoint_type",
                                 "backend",
                                 "label",
                                 "model_id",
                                 "num_prompts",
                                 "request_rate",
                                 "burstiness",
                                 "max_concurrency",
                                 "duration",
                                 "completed",
                                 "failed",
                                 "total_input_tokens",
                                 "total_output_tokens",
                                 "request_throughput",
                                 "request_goodput",
                                 "output_throughput",
                                 "total_token_throughput",
                                 "max_output_tokens_per_s",
                                 "max_concurrent_requests",
                                 "mean_ttft_ms",
                                 "median_ttft_ms",
                                 "std_ttft_ms",
                                 "p99_ttft_ms",
                                 "mean_tpot_ms",
                                 "mean_itl_ms",
                                 "p99.9_e2el_ms",
                                 "max_e2el_ms",
                                 "mean_scheduled_ttft_ms",
                                 "input_lens",
                                 "output_lens",
                                 "ttfts",
                                 "itls",
                                 "latencies",
                                 "start_times",
                                 "queue_times",
                                 "errors",
                                 "generator_lag_ms",
                                 "server_stages_ms",
                                 "schedule_hash",
                                 "seed"};

TEST(JsonReportTest, HasTheKeysOfVllmBenchServeAndOurs) {
  const Summary summary = Summarize(FiveRequests(), kOptions);
  auto json = JsonReport(kDescription, summary, {});
  AddDetails(FiveRequests(), true, json);
  for (const char* key : kKeys) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["commit"], "abc");
  EXPECT_EQ(json["completed"], 4);
  EXPECT_EQ(json["failed"], 1);
  EXPECT_EQ(json["request_rate"], 10);
  EXPECT_EQ(json["max_concurrency"], nullptr);
  EXPECT_EQ(json["ttfts"].size(), 5u);
  EXPECT_DOUBLE_EQ(json["ttfts"][0], 0.02);
  EXPECT_DOUBLE_EQ(json["itls"][0][0], 0.01);
  EXPECT_EQ(json["errors"][0], "");
  EXPECT_NE(json["errors"][4], "");
  EXPECT_FALSE(json.contains("predictions"));
  EXPECT_FALSE(json.contains("rate_search"));
  AddProbes({{.rate = 3, .attainment = {0.9, 0.8, 0.95}, .goodput = 2.5}}, json);
  EXPECT_EQ(json["rate_search"][0]["request_rate"], 3);
}

TEST(JsonReportTest, AnInfiniteRateIsWrittenAsInf) {
  RunDescription description = kDescription;
  description.request_rate = std::numeric_limits<double>::infinity();
  EXPECT_EQ(JsonReport(description, {}, {})["request_rate"], "inf");
}

TEST(RequestLinesTest, EveryRequestIsAJsonObjectOnALine) {
  const std::string lines = RequestLines(FiveRequests(), kOptions);
  std::vector<nlohmann::json> rows;
  for (size_t at = 0; at < lines.size(); at = lines.find('\n', at) + 1) {
    rows.push_back(ParseJson(lines.substr(at, lines.find('\n', at) - at)));
  }
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[0]["verdict"], "complete");
  EXPECT_EQ(rows[0]["good"], true);
  EXPECT_EQ(rows[0]["server_stages_ms"]["prefill"], 15);
  EXPECT_FALSE(rows[0].contains("predicted_ms"));
  EXPECT_FALSE(rows[0].contains("error"));
  EXPECT_EQ(rows[4]["verdict"], "failed");
  EXPECT_EQ(rows[4]["good"], false);
  EXPECT_THAT(rows[4]["error"].get<std::string>(), HasSubstr("worker <lost>"));
}

TEST(HtmlReportTest, IsOnePageThatNeedsNothingElse) {
  const RunResult run = FiveRequests();
  const Summary summary = Summarize(run, kOptions);
  const std::string html = HtmlReport({kDescription, run, kOptions, summary, {}, {}});
  EXPECT_THAT(html, HasSubstr("<svg"));
  EXPECT_THAT(html, HasSubstr("m &amp; m"));
  EXPECT_THAT(html, HasSubstr("Mean time to first token by stage"));
  EXPECT_THAT(html, HasSubstr("Successful requests:"));
  EXPECT_THAT(html, Not(HasSubstr("http")));
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("nan")));
  EXPECT_THAT(html, Not(HasSubstr("Rate search")));
  const std::vector<RateProbe> probes = {{.rate = 3}, {.rate = 6}};
  EXPECT_THAT(HtmlReport({kDescription, run, kOptions, summary, {}, probes}),
              HasSubstr("Rate search"));
}

TEST(SvgPlotTest, TicksAreRoundNumbersThatReachTheHighestValue) {
  EXPECT_DOUBLE_EQ(TickStep(1), 0.2);
  EXPECT_DOUBLE_EQ(TickStep(37), 5);
  EXPECT_DOUBLE_EQ(TickStep(80), 10);
  EXPECT_DOUBLE_EQ(TickStep(0.0015), 0.0002);
}

TEST(SvgPlotTest, PointsLieInTheFrame) {
  const std::string svg = RenderSvg(
      {.title = "t", .series = {{"s", "#000", PlotSeries::Mark::kDots, {{0, 0}, {10, 100}}}}});
  EXPECT_THAT(svg, HasSubstr("<circle cx=\"70.0\" cy=\"252.0\""));
  EXPECT_THAT(svg, HasSubstr("<circle cx=\"620.0\" cy=\"34.0\""));
}

TEST(SvgPlotTest, ALogarithmicAxisSpacesDecadesEvenlyAndLeavesOutWhatItCannotHold) {
  const std::string svg = RenderSvg(
      {.title = "t",
       .x_axis = Axis::kLogarithmic,
       .series = {
           {"s", "#000", PlotSeries::Mark::kDots, {{0, 5}, {-1, 5}, {1, 5}, {10, 5}, {100, 5}}}}});
  EXPECT_THAT(svg, HasSubstr("<circle cx=\"345.0\""));
  const auto circles = [&svg] {
    int count = 0;
    for (size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1))
      ++count;
    return count;
  };
  EXPECT_EQ(circles(), 3);
}

TEST(SvgPlotTest, ALongSeriesIsThinned) {
  PlotSeries series{"s", "#000", PlotSeries::Mark::kDots, {}};
  for (int i = 0; i < 100000; ++i) series.points.push_back({1.0 * i, 1});
  EXPECT_LT(RenderSvg({.series = {series}}).size(), 400000u);
}

}  // namespace
}  // namespace tandem::loadgen::report_test
