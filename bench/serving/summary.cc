#include "bench/serving/summary.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

namespace tandem::loadgen {
namespace {

using Records = std::vector<const RequestRecord*>;

Records MeasuredOf(const RunResult& run, const SummaryOptions& options) {
  Records measured;
  for (const RequestRecord& record : run.records) {
    if (record.scheduled >= options.warmup) measured.push_back(&record);
  }
  return measured;
}

Records CompleteOf(const Records& records, bool ignore_eos) {
  Records complete;
  for (const RequestRecord* record : records) {
    if (Judge(*record, ignore_eos) == Verdict::kComplete) complete.push_back(record);
  }
  return complete;
}

VerdictCounts Count(const Records& records, bool ignore_eos) {
  VerdictCounts counts;
  for (const RequestRecord* record : records) {
    switch (Judge(*record, ignore_eos)) {
      case Verdict::kComplete:
        ++counts.complete;
        break;
      case Verdict::kCancelled:
        ++counts.cancelled;
        break;
      case Verdict::kFailed:
        ++counts.failed;
        break;
      case Verdict::kTruncated:
        ++counts.truncated;
        break;
      case Verdict::kWrongLength:
        ++counts.wrong_length;
        break;
    }
  }
  return counts;
}

// The samples that `take` finds in the records.
Distribution Collect(const Records& records,
                     const std::function<std::optional<double>(const RequestRecord&)>& take) {
  std::vector<double> samples;
  for (const RequestRecord* record : records) {
    if (const auto sample = take(*record)) samples.push_back(*sample);
  }
  return Distribution(std::move(samples));
}

Distribution CollectAll(const Records& records,
                        const std::function<std::vector<double>(const RequestRecord&)>& take) {
  std::vector<double> samples;
  for (const RequestRecord* record : records) {
    const std::vector<double> more = take(*record);
    samples.insert(samples.end(), more.begin(), more.end());
  }
  return Distribution(std::move(samples));
}

LatencySummary Latencies(const Records& complete, bool token_gaps) {
  const auto of = [&complete](auto member) {
    return Collect(complete, [member](const RequestRecord& record) {
      return std::optional<double>(LatencyOf(record).*member);
    });
  };
  return {.ttft = of(&RequestLatency::ttft),
          .tpot = of(&RequestLatency::tpot),
          .itl = token_gaps ? CollectAll(complete, TokenGaps) : Distribution(),
          .chunk_gap = token_gaps ? CollectAll(complete, ChunkGaps) : Distribution(),
          .e2e = of(&RequestLatency::e2e),
          .scheduled_ttft = of(&RequestLatency::scheduled_ttft),
          .scheduled_e2e = of(&RequestLatency::scheduled_e2e),
          .client_queue = of(&RequestLatency::client_queue)};
}

constexpr std::pair<std::string_view, double ServerStages::*> kStages[] = {
    {"earlier tries", &ServerStages::earlier_attempts},
    {"queue", &ServerStages::queue},
    {"prefill", &ServerStages::prefill},
    {"reserve", &ServerStages::reserve},
    {"admission", &ServerStages::admission},
    {"transfer", &ServerStages::transfer},
    {"first token", &ServerStages::first_token},
    {"residual", &ServerStages::residual}};

StageSummary Stages(const Records& complete) {
  constexpr double kRoundingMs = 0.01;
  StageSummary summary;
  Records reported;
  for (const RequestRecord* record : complete) {
    if (!record->end.stages) continue;
    reported.push_back(record);
    double sum = 0;
    for (const auto& [name, member] : kStages) sum += *record->end.stages.*member;
    if (!(std::abs(sum - record->end.stages->ttft) <= kRoundingMs)) ++summary.not_adding_up;
  }
  if (reported.empty()) return summary;
  const auto add = [&](std::string_view name, double ServerStages::*member) {
    summary.stages.push_back({name, Collect(reported, [member](const RequestRecord& record) {
                                return std::optional<double>(*record.end.stages.*member);
                              })});
  };
  for (const auto& [name, member] : kStages) add(name, member);
  add("ttft", &ServerStages::ttft);
  summary.outside = Collect(reported, [](const RequestRecord& record) -> std::optional<double> {
    const auto ttft = LatencyOf(record).ttft;
    if (!ttft) return std::nullopt;
    return *ttft - record.end.stages->ttft;
  });
  return summary;
}

void AddPrediction(const Records& complete, std::string_view name,
                   std::optional<double> PredictedLatency::*member,
                   const std::function<std::optional<double>(const RequestLatency&)>& actual_of,
                   std::vector<PredictionSummary>& predictions) {
  constexpr double kClose = 0.2;
  std::vector<double> predicted;
  std::vector<double> actual;
  std::vector<double> errors;
  for (const RequestRecord* record : complete) {
    if (!record->end.predicted) continue;
    const std::optional<double> guess = *record->end.predicted.*member;
    const std::optional<double> truth = actual_of(LatencyOf(*record));
    if (!guess || !truth || !(*truth > 0)) continue;
    predicted.push_back(*guess);
    actual.push_back(*truth);
    errors.push_back(std::abs(*guess - *truth) / *truth);
  }
  if (predicted.empty()) return;
  PredictionSummary summary{.name = name,
                            .predicted_ms = Distribution(std::move(predicted)),
                            .actual_ms = Distribution(std::move(actual)),
                            .error = Distribution(std::move(errors))};
  summary.share_within_20_percent = summary.error.ShareUpTo(kClose);
  predictions.push_back(std::move(summary));
}

std::vector<PredictionSummary> Predictions(const Records& complete) {
  std::vector<PredictionSummary> predictions;
  AddPrediction(
      complete, "TTFT", &PredictedLatency::ttft,
      [](const RequestLatency& latency) { return latency.ttft; }, predictions);
  AddPrediction(
      complete, "TPOT", &PredictedLatency::tpot,
      [](const RequestLatency& latency) { return latency.tpot; }, predictions);
  AddPrediction(
      complete, "E2EL", &PredictedLatency::e2e,
      [](const RequestLatency& latency) { return std::optional<double>(latency.e2e); },
      predictions);
  return predictions;
}

// The tokens of measured requests that arrived in the best second of the run.
double PeakOutput(const Records& measured) {
  std::map<int64_t, int64_t> per_second;
  for (const RequestRecord* record : measured) {
    for (const ChunkArrival& chunk : record->chunks) {
      per_second[std::chrono::floor<std::chrono::seconds>(chunk.at).count()] += chunk.tokens;
    }
  }
  int64_t best = 0;
  for (const auto& [second, tokens] : per_second) best = std::max(best, tokens);
  return static_cast<double>(best);
}

// Also counts what requests from before the window get in it.
std::optional<SteadyWindow> Steady(const RunResult& run, const SummaryOptions& options) {
  Duration end{};
  for (const RequestRecord& record : run.records) end = std::max(end, record.scheduled);
  const double seconds = ToSeconds(end - options.warmup);
  if (seconds <= 0) return std::nullopt;
  int64_t requests = 0;
  int64_t tokens = 0;
  const auto inside = [&](Duration at) { return at >= options.warmup && at <= end; };
  for (const RequestRecord& record : run.records) {
    if (inside(record.ended) && Judge(record, options.ignore_eos) == Verdict::kComplete) ++requests;
    for (const ChunkArrival& chunk : record.chunks) {
      if (inside(chunk.at)) tokens += chunk.tokens;
    }
  }
  return SteadyWindow{.seconds = seconds,
                      .request_throughput = static_cast<double>(requests) / seconds,
                      .output_throughput = static_cast<double>(tokens) / seconds};
}

double AchievedRate(const Records& measured) {
  if (measured.size() < 2) return 0;
  const double seconds = ToSeconds(measured.back()->sent - measured.front()->sent);
  return seconds > 0 ? static_cast<double>(measured.size() - 1) / seconds : 0;
}

void FillThroughput(const Records& measured, const Records& complete, const SummaryOptions& options,
                    Summary& summary) {
  Duration end = options.warmup;
  for (const RequestRecord* record : measured) end = std::max(end, record->ended);
  summary.duration_seconds = ToSeconds(end - options.warmup);
  for (const RequestRecord* record : complete) {
    summary.input_tokens +=
        record->end.prompt_tokens >= 0 ? record->end.prompt_tokens : record->prompt_tokens;
    summary.output_tokens += OutputTokens(*record);
  }
  if (summary.duration_seconds <= 0) return;
  const auto per_second = [&](int64_t count) {
    return static_cast<double>(count) / summary.duration_seconds;
  };
  summary.request_throughput = per_second(summary.counts.complete);
  summary.output_throughput = per_second(summary.output_tokens);
  summary.total_throughput = per_second(summary.input_tokens + summary.output_tokens);
  if (!options.objectives.any()) return;
  const auto good = static_cast<size_t>(
      std::count_if(complete.begin(), complete.end(),
                    [&](const RequestRecord* record) { return IsGood(*record, options); }));
  summary.goodput = per_second(static_cast<int64_t>(good));
  summary.attainment = WilsonInterval(good, static_cast<size_t>(summary.counts.judged()));
}

}  // namespace

bool IsGood(const RequestRecord& record, const SummaryOptions& options) {
  return Judge(record, options.ignore_eos) == Verdict::kComplete &&
         MeetsObjectives(LatencyOf(record), options.objectives);
}

Summary Summarize(const RunResult& run, const SummaryOptions& options) {
  const Records measured = MeasuredOf(run, options);
  const Records complete = CompleteOf(measured, options.ignore_eos);
  Summary summary;
  summary.counts = Count(measured, options.ignore_eos);
  summary.simulated = std::ranges::any_of(
      measured, [](const RequestRecord* record) { return record->end.simulated; });
  FillThroughput(measured, complete, options, summary);
  summary.achieved_rate = AchievedRate(measured);
  summary.peak_output_throughput = PeakOutput(measured);
  summary.peak_concurrency = run.peak_concurrency;
  summary.steady = Steady(run, options);
  summary.lag = Collect(measured, [](const RequestRecord& record) {
    return std::optional<double>(LatencyOf(record).lag);
  });
  summary.latency = Latencies(complete, options.token_gaps);
  summary.stages = Stages(complete);
  summary.predictions = Predictions(complete);
  return summary;
}

}  // namespace tandem::loadgen
