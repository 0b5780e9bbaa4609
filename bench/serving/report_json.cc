#include "bench/serving/report_json.h"

#include <cmath>
#include <ctime>

#include "base/json.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace tandem::loadgen {
namespace {

using Json = nlohmann::ordered_json;

std::string DateText() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[sizeof("20261123-133000")];
  std::strftime(text, sizeof(text), "%Y%m%d-%H%M%S", &utc);
  return text;
}

template <typename Value>
Json OrNull(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json DistributionJson(const Distribution& ms) {
  return {{"mean", ms.Mean()},        {"p50", ms.Median()},       {"p90", ms.Percentile(90)},
          {"p95", ms.Percentile(95)}, {"p99", ms.Percentile(99)}, {"p99.9", ms.Percentile(99.9)},
          {"max", ms.Max()},          {"count", ms.count()}};
}

void AddDescription(const RunDescription& description, Json& json) {
  json["date"] = DateText();
  json["endpoint_type"] = description.backend;
  json["backend"] = description.backend;
  json["label"] = description.label;
  json["model_id"] = description.model;
  json["num_prompts"] = description.num_prompts;
  for (const std::string& pair : description.metadata) {
    const size_t equals = pair.find('=');
    json[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  // JSON has no infinity: others write it as this text, too.
  json["request_rate"] =
      std::isfinite(description.request_rate) ? Json(description.request_rate) : Json("inf");
  json["burstiness"] =
      std::isfinite(description.burstiness) ? Json(description.burstiness) : Json("inf");
  json["max_concurrency"] =
      description.max_concurrency > 0 ? Json(description.max_concurrency) : Json(nullptr);
  json["arrivals"] = description.arrivals;
  json["seed"] = description.seed;
  json["schedule_hash"] = description.schedule_hash;
  json["warmup_seconds"] = description.warmup_seconds;
}

void AddCounts(const Summary& summary, Json& json) {
  json["duration"] = summary.duration_seconds;
  json["completed"] = summary.counts.complete;
  json["failed"] = summary.counts.not_complete();
  json["errors_count"] = summary.counts.failed;
  json["truncated"] = summary.counts.truncated;
  json["wrong_length"] = summary.counts.wrong_length;
  json["cancelled"] = summary.counts.cancelled;
  json["total_input_tokens"] = summary.input_tokens;
  json["total_output_tokens"] = summary.output_tokens;
  json["request_rate_achieved"] = summary.achieved_rate;
  json["request_throughput"] = summary.request_throughput;
  json["request_goodput"] = OrNull(summary.goodput);
  if (summary.goodput) {
    json["slo_attainment"] = {{"share", summary.attainment.share},
                              {"low", summary.attainment.low},
                              {"high", summary.attainment.high}};
  }
  json["output_throughput"] = summary.output_throughput;
  json["total_token_throughput"] = summary.total_throughput;
  json["max_output_tokens_per_s"] = summary.peak_output_throughput;
  json["max_concurrent_requests"] = summary.peak_concurrency;
  if (summary.steady) {
    json["steady_window"] = {{"seconds", summary.steady->seconds},
                             {"request_throughput", summary.steady->request_throughput},
                             {"output_throughput", summary.steady->output_throughput}};
  }
}

void AddSections(const Summary& summary, const ReportChoice& choice, Json& json) {
  for (const MetricSection& section : SectionsOf(summary, choice)) {
    const auto key = [&section](std::string_view what) {
      return fmt::format("{}_{}_ms", what, section.key);
    };
    json[key("mean")] = section.ms->Mean();
    json[key("median")] = section.ms->Median();
    json[key("std")] = section.ms->Deviation();
    for (const double percent : choice.percentiles) {
      json[key("p" + PercentText(percent))] = section.ms->Percentile(percent);
    }
    json[key("max")] = section.ms->Max();
  }
}

Json StagesJson(const ServerStages& stages) {
  return {{"earlier_attempts", stages.earlier_attempts},
          {"queue", stages.queue},
          {"prefill", stages.prefill},
          {"reserve", stages.reserve},
          {"admission", stages.admission},
          {"transfer", stages.transfer},
          {"first_token", stages.first_token},
          {"residual", stages.residual},
          {"ttft", stages.ttft}};
}

Json RequestJson(const RequestRecord& record, const SummaryOptions& options) {
  const RequestLatency latency = LatencyOf(record);
  Json json = {{"id", record.id},
               {"verdict", Name(Judge(record, options.ignore_eos))},
               {"prompt_tokens", record.prompt_tokens},
               {"wanted_tokens", record.wanted_tokens},
               {"output_tokens", OutputTokens(record)},
               {"scheduled_ms", ToMilliseconds(record.scheduled)},
               {"sent_ms", ToMilliseconds(record.sent)},
               {"ended_ms", ToMilliseconds(record.ended)},
               {"measured", record.scheduled >= options.warmup},
               {"lag_ms", latency.lag},
               {"client_queue_ms", latency.client_queue},
               {"ttft_ms", OrNull(latency.ttft)},
               {"scheduled_ttft_ms", OrNull(latency.scheduled_ttft)},
               {"tpot_ms", OrNull(latency.tpot)},
               {"e2el_ms", latency.e2e},
               {"scheduled_e2el_ms", latency.scheduled_e2e}};
  if (options.objectives.any()) json["good"] = IsGood(record, options);
  if (record.end.cached_tokens >= 0) json["cached_tokens"] = record.end.cached_tokens;
  if (record.end.simulated) json["simulated"] = true;
  if (!record.end.route.empty()) json["route"] = record.end.route;
  if (record.end.stages) json["server_stages_ms"] = StagesJson(*record.end.stages);
  if (record.end.predicted) {
    json["predicted_ms"] = {{"ttft", OrNull(record.end.predicted->ttft)},
                            {"tpot", OrNull(record.end.predicted->tpot)},
                            {"e2el", OrNull(record.end.predicted->e2e)}};
  }
  const std::string why = WhyNotComplete(record, options.ignore_eos);
  if (!why.empty()) json["error"] = why;
  return json;
}

}  // namespace

Json JsonReport(const RunDescription& description, const Summary& summary,
                const ReportChoice& choice) {
  Json json;
  AddDescription(description, json);
  json["simulated"] = summary.simulated;
  AddCounts(summary, json);
  AddSections(summary, choice, json);
  json["generator_lag_ms"] = DistributionJson(summary.lag);
  if (!summary.stages.stages.empty()) {
    Json stages;
    for (const NamedDistribution& stage : summary.stages.stages) {
      stages[std::string(stage.name)] = DistributionJson(stage.ms);
    }
    stages["outside"] = DistributionJson(summary.stages.outside);
    stages["not_adding_up"] = summary.stages.not_adding_up;
    json["server_stages_ms"] = std::move(stages);
  }
  for (const PredictionSummary& each : summary.predictions) {
    json["predictions"][std::string(each.name)] = {
        {"predicted_ms", DistributionJson(each.predicted_ms)},
        {"actual_ms", DistributionJson(each.actual_ms)},
        {"relative_error", DistributionJson(each.error)},
        {"share_within_20_percent", each.share_within_20_percent}};
  }
  return json;
}

void AddProbes(const std::vector<RateProbe>& probes, Json& json) {
  for (const RateProbe& probe : probes) {
    json["rate_search"].push_back({{"request_rate", probe.rate},
                                   {"attainment", probe.attainment.share},
                                   {"low", probe.attainment.low},
                                   {"high", probe.attainment.high},
                                   {"request_goodput", probe.goodput}});
  }
}

void AddDetails(const RunResult& run, bool ignore_eos, Json& json) {
  for (const char* name : {"input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times",
                           "queue_times", "errors"}) {
    json[name] = Json::array();
  }
  for (const RequestRecord& record : run.records) {
    const RequestLatency latency = LatencyOf(record);
    Json gaps = Json::array();
    for (const double gap : ChunkGaps(record)) gaps.push_back(gap / 1e3);
    json["input_lens"].push_back(record.prompt_tokens);
    json["output_lens"].push_back(OutputTokens(record));
    json["ttfts"].push_back(latency.ttft.value_or(0) / 1e3);
    json["itls"].push_back(std::move(gaps));
    json["latencies"].push_back(latency.e2e / 1e3);
    json["start_times"].push_back(ToSeconds(record.sent));
    json["queue_times"].push_back(latency.client_queue / 1e3);
    json["errors"].push_back(WhyNotComplete(record, ignore_eos));
  }
}

std::string RequestLines(const RunResult& run, const SummaryOptions& options) {
  std::string lines;
  for (const RequestRecord& record : run.records) {
    lines += JsonText(RequestJson(record, options));
    lines += '\n';
  }
  return lines;
}

}  // namespace tandem::loadgen
