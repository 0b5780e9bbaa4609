#include "bench/serving/summary.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tandem::loadgen::summary_test {
namespace {

using std::chrono::milliseconds;

// Arrives at `at`, is sent 1 ms later, and gets its tokens 10 ms apart from 20 ms after the send
// on.
RequestRecord Complete(Duration at, int32_t tokens = 4) {
  RequestRecord record;
  record.prompt_tokens = 10;
  record.wanted_tokens = tokens;
  record.scheduled = record.due = at;
  record.sent = at + milliseconds(1);
  for (int32_t i = 0; i < tokens; ++i) {
    record.chunks.push_back({record.sent + milliseconds(20 + 10 * i), 1});
  }
  record.ended = record.chunks.back().at + milliseconds(2);
  record.end = {
      .whole = true, .finish_reason = "length", .prompt_tokens = 10, .output_tokens = tokens};
  return record;
}

RunResult ResultOf(std::vector<RequestRecord> records) {
  RunResult run;
  run.records = std::move(records);
  for (const RequestRecord& record : run.records) run.length = std::max(run.length, record.ended);
  return run;
}

TEST(RecordTest, LatenciesAreTakenFromTheSendAndFromTheArrival) {
  const RequestLatency latency = LatencyOf(Complete(milliseconds(100)));
  EXPECT_DOUBLE_EQ(*latency.ttft, 20);
  EXPECT_DOUBLE_EQ(*latency.scheduled_ttft, 21);
  EXPECT_DOUBLE_EQ(*latency.tpot, 10);
  EXPECT_DOUBLE_EQ(latency.e2e, 52);
  EXPECT_DOUBLE_EQ(latency.scheduled_e2e, 53);
  EXPECT_DOUBLE_EQ(latency.lag, 1);
  EXPECT_DOUBLE_EQ(latency.client_queue, 0);
  EXPECT_FALSE(LatencyOf(Complete(milliseconds(0), 1)).tpot) << "one token has no time between";
}

TEST(RecordTest, AMessageOfSeveralTokensCountsOncePerTokenInItlAndOnceInChunkGaps) {
  RequestRecord record = Complete(milliseconds(0), 1);
  record.chunks.push_back({record.chunks[0].at + milliseconds(30), 3});
  EXPECT_EQ(TokenGaps(record), (std::vector<double>{10, 10, 10}));
  EXPECT_EQ(ChunkGaps(record), std::vector<double>{30});
}

TEST(RecordTest, OnlyAWholeAnswerOfTheWantedLengthIsComplete) {
  EXPECT_EQ(Judge(Complete(milliseconds(0)), true), Verdict::kComplete);
  RequestRecord failed = Complete(milliseconds(0));
  failed.end.status = absl::UnavailableError("gone");
  EXPECT_EQ(Judge(failed, true), Verdict::kFailed);
  EXPECT_NE(WhyNotComplete(failed, true).find("gone"), std::string::npos);
  RequestRecord cut = Complete(milliseconds(0));
  cut.end.whole = false;
  EXPECT_EQ(Judge(cut, true), Verdict::kTruncated);
  EXPECT_NE(WhyNotComplete(cut, true).find("4 of 4 tokens"), std::string::npos);
  RequestRecord lost = Complete(milliseconds(0));
  lost.chunks.pop_back();
  EXPECT_EQ(Judge(lost, true), Verdict::kWrongLength) << "the server counts one more than arrived";
  RequestRecord shorter = Complete(milliseconds(0));
  shorter.wanted_tokens = 5;
  shorter.end.finish_reason = "stop";
  EXPECT_EQ(Judge(shorter, true), Verdict::kWrongLength);
  EXPECT_EQ(Judge(shorter, false), Verdict::kComplete) << "where the model may stop";
  shorter.end.finish_reason = "length";
  EXPECT_EQ(Judge(shorter, false), Verdict::kWrongLength);
  RequestRecord longer = Complete(milliseconds(0));
  longer.wanted_tokens = 3;
  EXPECT_EQ(Judge(longer, false), Verdict::kWrongLength);
  RequestRecord prompt = Complete(milliseconds(0));
  prompt.end.prompt_tokens = 9;
  EXPECT_EQ(Judge(prompt, true), Verdict::kWrongLength);
  prompt.end.counts_are_exact = false;
  EXPECT_EQ(Judge(prompt, true), Verdict::kComplete)
      << "text has as many tokens as the server says";
  RequestRecord empty = Complete(milliseconds(0));
  empty.chunks.clear();
  empty.end.output_tokens = 0;
  empty.end.finish_reason = "stop";
  EXPECT_EQ(Judge(empty, false), Verdict::kWrongLength);
}

TEST(SummaryTest, FailedAndTruncatedRequestsAreNeverGoodAndNeverInALatency) {
  RequestRecord failed = Complete(milliseconds(10));
  failed.end.status = absl::InternalError("broken");
  RequestRecord cut = Complete(milliseconds(20));
  cut.end.whole = false;
  RequestRecord wrong = Complete(milliseconds(30));
  wrong.wanted_tokens = 7;
  RequestRecord cancelled = Complete(milliseconds(40));
  cancelled.cancel_planned = true;
  cancelled.end.status = absl::CancelledError("planned");
  const SummaryOptions options = {.objectives = {.ttft = 1000}};
  const RunResult run = ResultOf({Complete(milliseconds(0)), failed, cut, wrong, cancelled});
  const Summary summary = Summarize(run, options);
  EXPECT_EQ(summary.counts.complete, 1);
  EXPECT_EQ(summary.counts.failed, 1);
  EXPECT_EQ(summary.counts.truncated, 1);
  EXPECT_EQ(summary.counts.wrong_length, 1);
  EXPECT_EQ(summary.counts.cancelled, 1);
  EXPECT_EQ(summary.latency.ttft.count(), 1u);
  EXPECT_EQ(summary.latency.itl.count(), 3u);
  EXPECT_EQ(summary.output_tokens, 4);
  EXPECT_DOUBLE_EQ(summary.attainment.share, 0.25) << "of those not cancelled on purpose";
  EXPECT_DOUBLE_EQ(*summary.goodput, 1 / summary.duration_seconds);
  for (const RequestRecord& record : {failed, cut, wrong, cancelled}) {
    EXPECT_FALSE(IsGood(record, options));
  }
}

TEST(SummaryTest, ObjectivesAreHeldAgainstTheLatencyFromTheArrival) {
  RequestRecord waited = Complete(milliseconds(0));
  waited.scheduled -= milliseconds(500);  // its latencies from the send are those of the others
  EXPECT_TRUE(IsGood(Complete(milliseconds(0)), {.objectives = {.ttft = 100}}));
  EXPECT_FALSE(IsGood(waited, {.objectives = {.ttft = 100}}));
  EXPECT_TRUE(IsGood(waited, {.objectives = {.tpot = 10}}));
  EXPECT_FALSE(IsGood(waited, {.objectives = {.tpot = 9.9}}));
  EXPECT_FALSE(IsGood(waited, {.objectives = {.e2e = 500}}));
  EXPECT_TRUE(IsGood(waited, {.objectives = {.tpot = 10, .e2e = 600}}));
}

TEST(SummaryTest, TheWarmUpIsInNoFigure) {
  std::vector<RequestRecord> records;
  for (int i = 0; i < 10; ++i) records.push_back(Complete(milliseconds(100 * i)));
  const Summary all = Summarize(ResultOf(records), {});
  EXPECT_EQ(all.counts.complete, 10);
  const Summary warm = Summarize(ResultOf(records), {.warmup = milliseconds(500)});
  EXPECT_EQ(warm.counts.complete, 5);
  EXPECT_EQ(warm.latency.ttft.count(), 5u);
  EXPECT_NEAR(warm.duration_seconds, 0.953 - 0.5, 1e-9);
  EXPECT_NEAR(warm.request_throughput, 5 / 0.453, 1e-6);
}

// From 500 ms to the last arrival at 900 ms; the last request ends after that.
TEST(SummaryTest, TheSteadyWindowCountsWhatHappenedInItAndNotTheDrain) {
  std::vector<RequestRecord> records;
  for (int i = 0; i < 10; ++i) records.push_back(Complete(milliseconds(100 * i)));
  const Summary summary = Summarize(ResultOf(records), {.warmup = milliseconds(500)});
  ASSERT_TRUE(summary.steady);
  EXPECT_NEAR(summary.steady->seconds, 0.4, 1e-9);
  EXPECT_NEAR(summary.steady->request_throughput, 4 / 0.4, 1e-9);
  EXPECT_NEAR(summary.steady->output_throughput, 16 / 0.4, 1e-9);
  EXPECT_FALSE(Summarize(ResultOf({Complete(milliseconds(0))}), {}).steady)
      << "all at once: there is no such window";
}

TEST(SummaryTest, ServerStagesThatDoNotAddUpAreCounted) {
  RequestRecord right = Complete(milliseconds(0));
  right.end.stages = ServerStages{.ttft = 15, .queue = 4, .prefill = 10, .residual = 1};
  RequestRecord wrong = Complete(milliseconds(10));
  wrong.end.stages = ServerStages{.ttft = 15, .queue = 4, .prefill = 10};
  const Summary summary = Summarize(ResultOf({right, wrong, Complete(milliseconds(20))}), {});
  EXPECT_EQ(summary.stages.not_adding_up, 1);
  ASSERT_EQ(summary.stages.stages.size(), 9u);
  EXPECT_EQ(summary.stages.stages[1].name, "queue");
  EXPECT_EQ(summary.stages.stages[1].ms.count(), 2u);
  EXPECT_DOUBLE_EQ(summary.stages.stages[1].ms.Mean(), 4);
  EXPECT_DOUBLE_EQ(summary.stages.outside.Mean(), 5);
}

TEST(SummaryTest, PredictionsAreComparedWithWhatCameTrueWhereThereAreAny) {
  EXPECT_TRUE(Summarize(ResultOf({Complete(milliseconds(0))}), {}).predictions.empty());
  RequestRecord near = Complete(milliseconds(0));
  near.end.predicted = PredictedLatency{.ttft = 22, .tpot = 10};
  RequestRecord far = Complete(milliseconds(10));
  far.end.predicted = PredictedLatency{.ttft = 30};
  const Summary summary = Summarize(ResultOf({near, far}), {});
  ASSERT_EQ(summary.predictions.size(), 2u);
  const PredictionSummary& ttft = summary.predictions[0];
  EXPECT_EQ(ttft.name, "TTFT");
  EXPECT_EQ(ttft.error.count(), 2u);
  EXPECT_NEAR(ttft.error.Percentile(0), 0.1, 1e-9);
  EXPECT_NEAR(ttft.error.Max(), 0.5, 1e-9);
  EXPECT_DOUBLE_EQ(ttft.share_within_20_percent, 0.5);
  EXPECT_EQ(summary.predictions[1].error.count(), 1u);
}

TEST(SummaryTest, TheBestSecondAndTheAchievedRateAreCounted) {
  std::vector<RequestRecord> records;
  for (int i = 0; i < 5; ++i) records.push_back(Complete(milliseconds(500 * i)));
  const Summary summary = Summarize(ResultOf(records), {});
  EXPECT_DOUBLE_EQ(summary.achieved_rate, 2);
  EXPECT_DOUBLE_EQ(summary.peak_output_throughput, 8);
}

}  // namespace
}  // namespace tandem::loadgen::summary_test
