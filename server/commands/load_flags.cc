#include "server/commands/load_flags.h"

#include <string>

#include "CLI/CLI.hpp"
#include "server/commands/number_flag.h"

namespace tandem {

void AddWorkloadFlags(CLI::App& command, BenchFlags& flags) {
  const std::string group = "Workload";
  loadgen::WorkloadOptions& workload = flags.options.workload;
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->group(group);
  };
  add("--dataset-name", flags.dataset, "random, or a trace: mooncake, bailian, burstgpt, azure")
      ->capture_default_str();
  add("--dataset-path", flags.dataset_path, "file of the trace");
  add("--num-prompts", workload.num_prompts, "requests; default 1000, or the whole trace");
  add("--input-len,--random-input-len", flags.input_len,
      "tokens of a prompt: N, uniform:LOW,HIGH or lognormal:MEDIAN,SIGMA")
      ->capture_default_str();
  add("--output-len,--random-output-len", flags.output_len, "tokens of an output, likewise")
      ->capture_default_str();
  add("--random-range-ratio", flags.range_ratio,
      "spread fixed lengths uniformly over [len * (1 - r), len * (1 + r)]")
      ->capture_default_str();
  add("--random-prefix-len", workload.prefix_tokens, "tokens of a shared prefix before each prompt")
      ->capture_default_str();
  add("--num-prefixes", workload.num_prefixes, "how many such prefixes there are")
      ->capture_default_str();
  add("--max-input-len", workload.max_input, "cut longer prompts, also those of a trace");
  add("--max-output-len", workload.max_output, "cut longer outputs, also those of a trace");
  add("--replay-speedup", workload.replay_speedup, "replay a trace so many times as fast")
      ->capture_default_str();
  add("--request-cancellation-rate", flags.cancellation_percent,
      "percent of the requests that are cancelled")
      ->capture_default_str();
  add("--request-cancellation-delay", flags.cancellation_delay_seconds,
      "seconds from the send to the cancellation")
      ->capture_default_str();
  add("--seed", flags.options.seed, "of arrivals, lengths, prompts and cancellations")
      ->check(NotNegative())
      ->capture_default_str();
}

void AddArrivalFlags(CLI::App& command, BenchFlags& flags) {
  const std::string group = "Arrivals";
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->group(group);
  };
  add("--request-rate", flags.request_rate,
      "requests/s; inf: all at once, or with --max-concurrency a closed loop. Default inf, or the "
      "times of the trace");
  add("--burstiness", flags.burstiness,
      "shape of gamma-distributed gaps: 1 Poisson, less: bursts, more: even, inf: constant")
      ->capture_default_str();
  command
      .add_flag("--normalize-arrivals", flags.normalize,
                "stretch the gaps so that the last request arrives at num-prompts / rate")
      ->group(group);
  add("--ramp-up-strategy", flags.ramp, "linear or exponential, instead of --request-rate");
  add("--ramp-up-start-rps", flags.ramp_start, "requests/s at the first request");
  add("--ramp-up-end-rps", flags.ramp_end, "requests/s at the last request");
  add("--max-concurrency", flags.options.run.max_concurrency, "requests under way at most")
      ->check(CLI::Range(1, 1 << 20));
}

void AddMeasuringFlags(CLI::App& command, BenchFlags& flags) {
  const std::string group = "Measuring";
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->group(group);
  };
  add("--warmup-seconds", flags.warmup_seconds,
      "requests that arrive in the first seconds of the run are not measured")
      ->capture_default_str();
  add("--drain-timeout-sec", flags.drain_seconds,
      "requests still running so long after the last arrival are cancelled and have failed")
      ->capture_default_str();
  add("--goodput", flags.goodput,
      "objectives in ms from the scheduled arrival: ttft:200 tpot:50 e2el:3000");
  command
      .add_flag("--dry-run", flags.options.dry_run, "print the schedule's hash and send nothing")
      ->group(group);
}

void AddOutputFlags(CLI::App& command, BenchFlags& flags) {
  const std::string group = "Output";
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->group(group);
  };
  add("--percentile-metrics", flags.percentile_metrics, "latencies to report")
      ->capture_default_str();
  add("--metric-percentiles", flags.metric_percentiles, "percentiles to report")
      ->capture_default_str();
  command.add_flag("--save-result", flags.save_result, "write the result as JSON")->group(group);
  command
      .add_flag("--save-detailed", flags.options.files.details, "with an element per request in it")
      ->group(group);
  add("--result-dir", flags.result_dir, "folder of the JSON file; default: this one");
  add("--result-filename", flags.result_filename, "name of the JSON file");
  add("--save-requests", flags.options.files.requests, "write one JSON line per request there");
  add("--save-html", flags.options.files.html, "write a page with plots there");
  add("--label", flags.options.label, "names the run in its results");
  add("--metadata", flags.options.metadata, "KEY=VALUE pairs for the JSON file");
}

}  // namespace tandem
