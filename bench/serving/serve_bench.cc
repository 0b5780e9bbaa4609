#include "bench/serving/serve_bench.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/status.h"
#include "bench/serving/progress.h"
#include "bench/serving/publish.h"
#include "fmt/format.h"

namespace tandem::loadgen {
namespace {

absl::Status CheckWritable(const char* flag, const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  if (access(folder.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return InvalidArgument("{}={}: the folder {} is not there or cannot be written", flag, path,
                         folder.string());
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
    return loadgen::Describe(options_, backend_.name(), server_.model, schedule);
  }

 private:
  const ServeBenchOptions& options_;
  Backend& backend_;
  ServerInfo server_;
};

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

absl::Status ServeBench(const ServeBenchOptions& options, Backend& backend) {
  ASSIGN_OR_RETURN(const Schedule schedule,
                   MakeSchedule(options.workload, options.arrivals, options.seed));
  RETURN_IF_ERROR(CheckWarmUp(options, schedule));
  PrintSchedule(options, schedule);
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
