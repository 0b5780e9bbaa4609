#include "bench/serving/publish.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <utility>

#include "base/json.h"
#include "base/status.h"
#include "bench/serving/report_html.h"
#include "bench/serving/report_json.h"
#include "bench/serving/report_text.h"
#include "fmt/format.h"

namespace tandem::loadgen {
namespace {

std::string_view Name(TraceFormat format) {
  switch (format) {
    case TraceFormat::kMooncake:
      return "mooncake";
    case TraceFormat::kBailian:
      return "bailian";
    case TraceFormat::kBurstGpt:
      return "burstgpt";
    case TraceFormat::kAzure:
      return "azure";
  }
  return "unknown";
}

std::string ArrivalText(const ServeBenchOptions& options) {
  if (!options.arrivals) return fmt::format("times of the {} trace", Name(*options.workload.trace));
  const ArrivalOptions& arrivals = *options.arrivals;
  if (IsClosedLoop(options)) return "closed loop";
  if (arrivals.ramp != Ramp::kNone) {
    return fmt::format("{} ramp, {:g} to {:g} req/s",
                       arrivals.ramp == Ramp::kLinear ? "linear" : "exponential",
                       arrivals.ramp_start, arrivals.ramp_end);
  }
  if (std::isinf(arrivals.rate)) return "all at once";
  if (std::isinf(arrivals.burstiness)) return "constant";
  if (arrivals.burstiness == 1) return "poisson";
  return fmt::format("gamma, burstiness {:g}", arrivals.burstiness);
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  if (path.empty()) return absl::OkStatus();
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file ? absl::OkStatus() : Internal("{} cannot be written", path);
}

// Up to three reasons why requests were not complete, each with how often it occurred.
void PrintFaults(const RunResult& run, bool ignore_eos) {
  std::map<std::string, int64_t> reasons;
  for (const RequestRecord& record : run.records) {
    const Verdict verdict = Judge(record, ignore_eos);
    if (verdict == Verdict::kComplete || verdict == Verdict::kCancelled) continue;
    ++reasons[WhyNotComplete(record, ignore_eos)];
  }
  int shown = 0;
  for (const auto& [reason, count] : reasons) {
    if (++shown > 3) break;
    fmt::print(stderr, "{} requests: {}\n", count, reason);
  }
  if (reasons.size() > 3) fmt::print(stderr, "... and {} other reasons\n", reasons.size() - 3);
}

}  // namespace

bool IsClosedLoop(const ServeBenchOptions& options) {
  return options.run.max_concurrency > 0 && options.arrivals &&
         options.arrivals->ramp == Ramp::kNone && std::isinf(options.arrivals->rate);
}

// A closed loop has no times before it runs.
absl::Status CheckWarmUp(const ServeBenchOptions& options, const Schedule& schedule) {
  const Duration warmup = options.summary.warmup;
  if (IsClosedLoop(options) || warmup <= schedule.Length()) return absl::OkStatus();
  return InvalidArgument(
      "--warmup-seconds={}: the last request arrives after {:.3f} s, so none would be measured",
      ToMilliseconds(warmup) / 1e3, ToMilliseconds(schedule.Length()) / 1e3);
}

RunDescription Describe(const ServeBenchOptions& options, std::string_view backend,
                        const std::string& model, const Schedule& schedule) {
  RunDescription description;
  description.backend = std::string(backend);
  description.model = model;
  description.label = options.label.empty() ? description.backend : options.label;
  description.arrivals = ArrivalText(options);
  if (options.arrivals && options.arrivals->ramp == Ramp::kNone) {
    description.request_rate = options.arrivals->rate;
    description.burstiness = options.arrivals->burstiness;
  }
  description.max_concurrency = options.run.max_concurrency;
  description.num_prompts = static_cast<int64_t>(schedule.requests.size());
  description.seed = options.seed;
  description.schedule_hash = schedule.HashText();
  description.warmup_seconds = ToMilliseconds(options.summary.warmup) / 1e3;
  description.objectives = options.summary.objectives;
  description.metadata = options.metadata;
  return description;
}

void PrintSchedule(const ServeBenchOptions& options, const Schedule& schedule) {
  int64_t input = 0;
  int64_t output = 0;
  for (const ScheduledRequest& request : schedule.requests) {
    input += request.prompt_tokens();
    output += request.output_tokens;
  }
  fmt::print("schedule {}: {} requests, {}, last at {:.3f} s, {} input and {} output tokens\n",
             schedule.HashText(), schedule.requests.size(), ArrivalText(options),
             ToMilliseconds(schedule.Length()) / 1e3, input, output);
}

absl::Status Publish(const ServeBenchOptions& options, const Outcome& outcome,
                     const std::vector<RateProbe>& probes, const ReportExtras& extras) {
  PrintFaults(outcome.run, options.summary.ignore_eos);
  auto json = JsonReport(outcome.description, outcome.summary, options.report);
  AddProbes(probes, json);
  if (extras.add_to_json) extras.add_to_json(json);
  if (extras.json_on_stdout) {
    fmt::print("{}\n", JsonText(json, 1));
  } else {
    fmt::print("{}{}{}", extras.heading,
               TextReport(outcome.description, outcome.summary, options.report), extras.text);
  }
  std::fflush(stdout);
  if (options.files.details) AddDetails(outcome.run, options.summary.ignore_eos, json);
  RETURN_IF_ERROR(WriteFile(options.files.json, JsonText(json, 1) + "\n"));
  if (!options.files.requests.empty()) {
    RETURN_IF_ERROR(WriteFile(options.files.requests, RequestLines(outcome.run, options.summary)));
  }
  if (!options.files.html.empty()) {
    RETURN_IF_ERROR(
        WriteFile(options.files.html, HtmlReport({outcome.description, outcome.run, options.summary,
                                                  outcome.summary, options.report, probes})));
  }
  if (outcome.summary.counts.complete > 0) return absl::OkStatus();
  return Unavailable("not one of {} requests was complete", outcome.run.records.size());
}

}  // namespace tandem::loadgen
