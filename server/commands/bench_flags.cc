#include "server/commands/bench_flags.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/status.h"
#include "bench/serving/grpc_backend.h"
#include "fmt/format.h"

namespace tandem {
namespace {

absl::StatusOr<Duration> SecondsFlag(const char* flag, double seconds) {
  constexpr double kLongest = 1e8;
  if (seconds >= 0 && seconds <= kLongest) return Duration(std::llround(seconds * 1e9));
  return InvalidArgument("{}={}: give a number of seconds from 0 to {}", flag, seconds, kLongest);
}

absl::Status FillWorkload(const BenchFlags& flags, loadgen::WorkloadOptions& workload) {
  ASSIGN_OR_RETURN(workload.input, loadgen::ParseLength("--input-len", flags.input_len));
  ASSIGN_OR_RETURN(workload.output, loadgen::ParseLength("--output-len", flags.output_len));
  ASSIGN_OR_RETURN(workload.input, SpreadLength(workload.input, flags.range_ratio));
  ASSIGN_OR_RETURN(workload.output, SpreadLength(workload.output, flags.range_ratio));
  workload.cancel_share = flags.cancellation_percent / 100;
  ASSIGN_OR_RETURN(workload.cancel_delay,
                   SecondsFlag("--request-cancellation-delay", flags.cancellation_delay_seconds));
  if (flags.dataset == "random") {
    if (flags.dataset_path.empty()) return absl::OkStatus();
    return InvalidArgument(
        "--dataset-path={}: --dataset-name random reads no file: name its format",
        flags.dataset_path);
  }
  const auto format = loadgen::ParseTraceFormat(flags.dataset);
  if (!format.ok()) {
    return InvalidArgument(
        "--dataset-name={}: use random, or a trace: mooncake, bailian, burstgpt, azure",
        flags.dataset);
  }
  workload.trace = *format;
  workload.trace_path = flags.dataset_path;
  if (!flags.dataset_path.empty()) return absl::OkStatus();
  return InvalidArgument("--dataset-name={} is read from a file: give --dataset-path",
                         flags.dataset);
}

absl::StatusOr<std::optional<loadgen::ArrivalOptions>> MakeArrivals(const BenchFlags& flags) {
  loadgen::ArrivalOptions arrivals;
  arrivals.burstiness = flags.burstiness;
  arrivals.normalize = flags.normalize;
  if (!flags.ramp.empty()) {
    if (flags.ramp != "linear" && flags.ramp != "exponential") {
      return InvalidArgument("--ramp-up-strategy={}: use linear or exponential", flags.ramp);
    }
    if (flags.request_rate) {
      return InvalidArgument("--request-rate={} and --ramp-up-strategy={}: give one of them",
                             *flags.request_rate, flags.ramp);
    }
    arrivals.ramp = flags.ramp == "linear" ? loadgen::Ramp::kLinear : loadgen::Ramp::kExponential;
    arrivals.ramp_start = flags.ramp_start;
    arrivals.ramp_end = flags.ramp_end;
  } else if (flags.request_rate) {
    arrivals.rate = *flags.request_rate;
  } else if (flags.dataset != "random" && !flags.find_goodput) {
    return std::nullopt;  // the trace has the times of arrival
  }
  return arrivals;
}

// The name that `vllm bench serve` gives its file, in --result-dir.
std::string ResultPath(const BenchFlags& flags) {
  if (!flags.save_result) return {};
  const std::string name =
      !flags.result_filename.empty()
          ? flags.result_filename
          : fmt::format("{}-{}qps{}-seed{}.json",
                        flags.options.label.empty() ? flags.backend : flags.options.label,
                        flags.request_rate.value_or(INFINITY),
                        flags.options.run.max_concurrency > 0
                            ? fmt::format("-concurrency{}", flags.options.run.max_concurrency)
                            : "",
                        flags.options.seed);
  return (std::filesystem::path(flags.result_dir) / name).string();
}

}  // namespace

absl::StatusOr<loadgen::ServeBenchOptions> MakeBenchOptions(const BenchFlags& flags) {
  loadgen::ServeBenchOptions options = flags.options;
  RETURN_IF_ERROR(FillWorkload(flags, options.workload));
  ASSIGN_OR_RETURN(options.arrivals, MakeArrivals(flags));
  ASSIGN_OR_RETURN(options.summary.warmup, SecondsFlag("--warmup-seconds", flags.warmup_seconds));
  ASSIGN_OR_RETURN(options.run.drain_timeout,
                   SecondsFlag("--drain-timeout-sec", flags.drain_seconds));
  ASSIGN_OR_RETURN(options.patience,
                   SecondsFlag("--ready-check-timeout-sec", flags.ready_timeout_seconds));
  ASSIGN_OR_RETURN(options.summary.objectives, loadgen::ParseObjectives(flags.goodput));
  ASSIGN_OR_RETURN(options.report,
                   loadgen::ParseReportChoice(flags.percentile_metrics, flags.metric_percentiles));
  options.summary.ignore_eos = flags.ignore_eos;
  options.files.json = ResultPath(flags);
  if (flags.find_goodput) {
    options.search = flags.search;
    options.search->start_rate = flags.request_rate.value_or(INFINITY);
  }
  RETURN_IF_ERROR(Validate(options));
  return options;
}

absl::StatusOr<std::unique_ptr<loadgen::Backend>> MakeBenchBackend(const BenchFlags& flags) {
  loadgen::RequestOptions request = {.ignore_eos = flags.ignore_eos,
                                     .temperature = flags.temperature};
  ASSIGN_OR_RETURN(request.timeout,
                   SecondsFlag("--request-timeout-sec", flags.request_timeout_seconds));
  if (request.timeout == Duration::zero()) {
    return InvalidArgument("--request-timeout-sec=0: give a number of seconds above 0");
  }
  if (!(flags.temperature >= 0 && flags.temperature <= 100)) {
    return InvalidArgument("--temperature={}: give a number from 0 to 100", flags.temperature);
  }
  if (flags.backend == "tandem") {
    ASSIGN_OR_RETURN(const loadgen::Objectives objectives, loadgen::ParseObjectives(flags.goodput));
    return loadgen::NewGrpcBackend({.server = flags.server,
                                    .route = flags.route,
                                    .request = request,
                                    .objectives = objectives,
                                    .tls = flags.tls});
  }
  if (flags.backend != "openai" && flags.backend != "openai-chat") {
    return InvalidArgument("--backend={}: use tandem, openai or openai-chat", flags.backend);
  }
  loadgen::OpenAiBackendOptions options = flags.openai;
  options.api =
      flags.backend == "openai" ? loadgen::OpenAiApi::kCompletions : loadgen::OpenAiApi::kChat;
  options.request = request;
  RETURN_IF_ERROR(flags.tls.CheckClient());
  options.tls = flags.tls;
  RETURN_IF_ERROR(loadgen::CheckExtraBody(options.extra_json));
  for (const std::string& pair : flags.headers) {
    const size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0) {
      return InvalidArgument("--header {}: give NAME=VALUE", pair);
    }
    options.headers.push_back(pair.substr(0, equals) + ": " + pair.substr(equals + 1));
  }
  if (const char* key = std::getenv("OPENAI_API_KEY")) options.api_key = key;
  return loadgen::NewOpenAiBackend(std::move(options));
}

}  // namespace tandem
