#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/serving/openai_backend.h"
#include "bench/serving/serve_bench.h"
#include "security/tls_files.h"
#include "server/commands/commands.h"

namespace tandem {

// The flags of `tandem bench serve` as they were typed.
struct BenchFlags {
  std::string backend = "tandem";
  std::string server = kDefaultServer;
  TlsFiles tls;
  std::string route = "auto";
  loadgen::OpenAiBackendOptions openai;
  std::vector<std::string> headers;
  double ready_timeout_seconds = 0;
  double request_timeout_seconds = 600;

  std::string dataset = "random";
  std::string dataset_path;
  std::string input_len = "1024";
  std::string output_len = "128";
  double range_ratio = 0;
  double cancellation_percent = 0;
  double cancellation_delay_seconds = 0;

  std::optional<double> request_rate;
  double burstiness = 1;
  bool normalize = false;
  std::string ramp;
  double ramp_start = 0;
  double ramp_end = 0;

  double warmup_seconds = 0;
  double drain_seconds = 600;
  bool ignore_eos = true;
  double temperature = 0;
  std::vector<std::string> goodput;
  bool find_goodput = false;
  loadgen::RateSearchOptions search;

  std::string percentile_metrics = "ttft,tpot,itl,e2el";
  std::string metric_percentiles = "90,95,99,99.9";
  bool save_result = false;
  std::string result_dir;
  std::string result_filename;

  loadgen::ServeBenchOptions options;  // those fields whose flags need no conversion
};

// The options that the flags ask for. INVALID_ARGUMENT names a flag and its value.
absl::StatusOr<loadgen::ServeBenchOptions> MakeBenchOptions(const BenchFlags& flags);
absl::StatusOr<std::unique_ptr<loadgen::Backend>> MakeBenchBackend(const BenchFlags& flags);

}  // namespace tandem
