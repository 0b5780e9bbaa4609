#include "bench/serving/serve_bench.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include "base/status.h"
#include "bench/serving/progress.h"
#include "bench/serving/report_html.h"
#include "bench/serving/report_json.h"
#include "bench/serving/report_text.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace tandem::loadgen {
namespace {

bool IsClosedLoop(const ServeBenchOptions& options) {
  return options.run.max_concurrency > 0 && options.arrivals &&
         options.arrivals->ramp == Ramp::kNone && std::isinf(options.arrivals->rate);
}

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

absl::Status CheckWritable(const char* flag, const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  if (access(folder.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return InvalidArgument("{}={}: the folder {} is not there or cannot be written", flag, path,
                         folder.string());
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  if (path.empty()) return absl::OkStatus();
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file ? absl::OkStatus() : Internal("{} cannot be written", path);
}

// One run at a time against one server.
class Bench {
 public:
  Bench(const ServeBenchOptions& options, Backend& backend)
      : options_(options), backend_(backend) {}

  absl::Status Start() {
    ASSIGN_OR_RETURN(server_, backend_.Connect(options_.patience));
    return absl::OkStatus();
  }

  absl::Status CheckContext(const Schedule& schedule) const {
    if (server_.max_context_tokens == 0) return absl::OkStatus();
    return CheckFits(schedule, server_.max_context_tokens);
  }

  // The answers to warm-up requests are in no figure, but a warm-up that fails ends the benchmark.
  absl::Status WarmUp(const Schedule& schedule) {
    if (options_.num_warmups == 0) return absl::OkStatus();
    Schedule few;
    for (int32_t i = 0; i < options_.num_warmups; ++i) {
      few.requests.push_back(schedule.requests[i % schedule.requests.size()]);
      few.requests.back().cancel_after.reset();
      // The prompts differ from those of the run, which would else find them in a prefix cache.
      for (PromptSegment& segment : few.requests.back().prompt) segment.seed = ~segment.seed;
    }
    RunOptions run = options_.run;
    run.id_prefix += "-warmup";
    run.max_concurrency = std::max(run.max_concurrency, 1);
    run.closed_loop = true;
    RunCounts counts;
    const ProgressDisplay progress("warm-up", options_.num_warmups, counts);
    const RunResult result = loadgen::Run(few, run, backend_, counts);
    for (const RequestRecord& record : result.records) {
      if (!record.end.status.ok()) return Annotate(record.end.status, "a warm-up request failed");
    }
    return absl::OkStatus();
  }

  RunResult Run(const Schedule& schedule) {
    RunOptions run = options_.run;
    run.closed_loop = IsClosedLoop(options_);
    RunCounts counts;
    const ProgressDisplay progress("requests", static_cast<int64_t>(schedule.requests.size()),
                                   counts);
    return loadgen::Run(schedule, run, backend_, counts);
  }

  RunDescription Describe(const Schedule& schedule) const {
    RunDescription description;
    description.backend = std::string(backend_.name());
    description.model = server_.model;
    description.label = options_.label.empty() ? description.backend : options_.label;
    description.arrivals = ArrivalText(options_);
    if (options_.arrivals && options_.arrivals->ramp == Ramp::kNone) {
      description.request_rate = options_.arrivals->rate;
      description.burstiness = options_.arrivals->burstiness;
    }
    description.max_concurrency = options_.run.max_concurrency;
    description.num_prompts = static_cast<int64_t>(schedule.requests.size());
    description.seed = options_.seed;
    description.schedule_hash = schedule.HashText();
    description.warmup_seconds = ToMilliseconds(options_.summary.warmup) / 1e3;
    description.objectives = options_.summary.objectives;
    description.metadata = options_.metadata;
    return description;
  }

 private:
  const ServeBenchOptions& options_;
  Backend& backend_;
  ServerInfo server_;
};

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

void PrintSchedule(const Schedule& schedule, const std::string& arrivals) {
  int64_t input = 0;
  int64_t output = 0;
  for (const ScheduledRequest& request : schedule.requests) {
    input += request.prompt_tokens();
    output += request.output_tokens;
  }
  fmt::print("schedule {}: {} requests, {}, last at {:.3f} s, {} input and {} output tokens\n",
             schedule.HashText(), schedule.requests.size(), arrivals,
             ToMilliseconds(schedule.Length()) / 1e3, input, output);
}

struct Outcome {
  RunDescription description;
  RunResult run;
  Summary summary;
};

absl::Status Publish(const ServeBenchOptions& options, const Outcome& outcome,
                     const std::vector<RateProbe>& probes) {
  PrintFaults(outcome.run, options.summary.ignore_eos);
  fmt::print("{}", TextReport(outcome.description, outcome.summary, options.report));
  std::fflush(stdout);
  auto json = JsonReport(outcome.description, outcome.summary, options.report);
  AddProbes(probes, json);
  if (options.files.details) AddDetails(outcome.run, options.summary.ignore_eos, json);
  RETURN_IF_ERROR(WriteFile(options.files.json, json.dump(1) + "\n"));
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

// The requests that arrive within the time of a probe, but at least as many as were asked for.
int32_t PromptsOfProbe(const ServeBenchOptions& options, double rate) {
  constexpr double kMost = 10'000'000;
  const double arriving = std::min(std::ceil(rate * options.search->probe_seconds), kMost);
  return std::max(options.workload.num_prompts.value_or(1), static_cast<int32_t>(arriving));
}

absl::Status Search(const ServeBenchOptions& options, Bench& bench) {
  RateSearch search(*options.search);
  std::vector<RateProbe> probes;
  std::optional<Outcome> best;
  ServeBenchOptions at_rate = options;
  while (const auto rate = search.Next()) {
    at_rate.arrivals->rate = *rate;
    at_rate.workload.num_prompts = PromptsOfProbe(options, *rate);
    ASSIGN_OR_RETURN(const Schedule schedule,
                     MakeSchedule(at_rate.workload, at_rate.arrivals, options.seed));
    RunResult run = bench.Run(schedule);
    Summary summary = Summarize(run, options.summary);
    const bool attained = summary.attainment.share >= options.search->attainment;
    probes.push_back({*rate, summary.attainment, summary.goodput.value_or(0)});
    fmt::print(
        "{:>10.3f} req/s for {:.1f} s: {:6.2f}% good (95% within {:.1f} and {:.1f}), goodput "
        "{:.3f} "
        "req/s, lag p99 {:.2f} ms, schedule {}\n",
        *rate, ToMilliseconds(schedule.Length()) / 1e3, summary.attainment.share * 100,
        summary.attainment.low * 100, summary.attainment.high * 100, summary.goodput.value_or(0),
        summary.lag.Percentile(99), schedule.HashText());
    std::fflush(stdout);
    search.Report(attained);
    if (attained || !best) {
      RunDescription description = bench.Describe(schedule);
      description.request_rate = *rate;
      best = Outcome{std::move(description), std::move(run), std::move(summary)};
    }
  }
  if (search.best()) {
    fmt::print("highest rate with {:g}% good requests: {:.3f} req/s\n",
               options.search->attainment * 100, *search.best());
  } else {
    fmt::print("no rate down to {:.3f} req/s had {:g}% good requests\n", probes.back().rate,
               options.search->attainment * 100);
  }
  return Publish(options, *best, probes);
}

}  // namespace

absl::Status Validate(const ServeBenchOptions& options) {
  RETURN_IF_ERROR(Validate(options.workload));
  if (options.arrivals) RETURN_IF_ERROR(Validate(*options.arrivals));
  if (options.run.max_concurrency < 0) {
    return InvalidArgument("--max-concurrency={}: give at least 1, or leave it out for no limit",
                           options.run.max_concurrency);
  }
  if (options.num_warmups < 0) {
    return InvalidArgument("--num-warmups={}: give 0 or more", options.num_warmups);
  }
  if (options.search) {
    const RateSearchOptions& search = *options.search;
    if (!options.summary.objectives.any()) {
      return InvalidArgument("--find-goodput needs objectives: give --goodput ttft:MS and so on");
    }
    if (!(search.attainment > 0 && search.attainment <= 1)) {
      return InvalidArgument("--attainment={}: give a share above 0 and up to 1",
                             search.attainment);
    }
    if (!(search.probe_seconds > 0 && search.probe_seconds <= 86400)) {
      return InvalidArgument("--probe-seconds={}: give a number above 0 and up to 86400",
                             search.probe_seconds);
    }
    if (!options.arrivals || options.arrivals->ramp != Ramp::kNone ||
        std::isinf(options.arrivals->rate)) {
      return InvalidArgument(
          "--find-goodput begins at --request-rate: give a number, and no ramp-up");
    }
  }
  RETURN_IF_ERROR(CheckWritable("--save-result", options.files.json));
  RETURN_IF_ERROR(CheckWritable("--save-requests", options.files.requests));
  RETURN_IF_ERROR(CheckWritable("--save-html", options.files.html));
  for (const std::string& pair : options.metadata) {
    if (pair.find('=') == std::string::npos || pair.front() == '=') {
      return InvalidArgument("--metadata {}: give KEY=VALUE", pair);
    }
  }
  return absl::OkStatus();
}

namespace {

// A closed loop has no times before it runs.
absl::Status CheckWarmUp(const ServeBenchOptions& options, const Schedule& schedule) {
  const Duration warmup = options.summary.warmup;
  if (IsClosedLoop(options) || warmup <= schedule.Length()) return absl::OkStatus();
  return InvalidArgument(
      "--warmup-seconds={}: the last request arrives after {:.3f} s, so none would be measured",
      ToMilliseconds(warmup) / 1e3, ToMilliseconds(schedule.Length()) / 1e3);
}

}  // namespace

absl::Status ServeBench(const ServeBenchOptions& options, Backend& backend) {
  ASSIGN_OR_RETURN(const Schedule schedule,
                   MakeSchedule(options.workload, options.arrivals, options.seed));
  RETURN_IF_ERROR(CheckWarmUp(options, schedule));
  PrintSchedule(schedule, ArrivalText(options));
  std::fflush(stdout);
  if (options.dry_run) return absl::OkStatus();
  Bench bench(options, backend);
  RETURN_IF_ERROR(bench.Start());
  RETURN_IF_ERROR(bench.CheckContext(schedule));
  RETURN_IF_ERROR(bench.WarmUp(schedule));
  if (options.search) return Search(options, bench);
  Outcome outcome{bench.Describe(schedule), bench.Run(schedule), {}};
  outcome.summary = Summarize(outcome.run, options.summary);
  return Publish(options, outcome, {});
}

}  // namespace tandem::loadgen
