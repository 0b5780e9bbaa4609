#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/serving/distribution.h"
#include "bench/serving/goodput.h"
#include "bench/serving/runner.h"

namespace tandem::loadgen {

struct SummaryOptions {
  // Requests that arrive earlier are sent but not judged, and tokens that arrive earlier not
  // counted.
  Duration warmup{};
  Objectives objectives;
  bool ignore_eos = true;
  bool token_gaps = true;  // false: the chunks are too coarse to say anything of single tokens
};

// How many of the measured requests came to what.
struct VerdictCounts {
  int64_t complete = 0;
  int64_t cancelled = 0;
  int64_t failed = 0;
  int64_t truncated = 0;
  int64_t wrong_length = 0;

  int64_t all() const { return complete + cancelled + failed + truncated + wrong_length; }
  // The requests that should have been complete.
  int64_t judged() const { return all() - cancelled; }
  int64_t not_complete() const { return failed + truncated + wrong_length; }
};

// Latencies of complete requests in milliseconds, by LatencyOf.
struct LatencySummary {
  Distribution ttft;
  Distribution tpot;
  Distribution itl;        // per token
  Distribution chunk_gap;  // per message
  Distribution e2e;
  Distribution scheduled_ttft;
  Distribution scheduled_e2e;
  Distribution client_queue;
};

struct NamedDistribution {
  std::string_view name;
  Distribution ms;
};

// What the server says about the time to the first token of complete requests.
struct StageSummary {
  std::vector<NamedDistribution>
      stages;                 // from "earlier tries" to "residual", then "ttft", their sum
  Distribution outside;       // our TTFT from the send less the server's: network, client
  int64_t not_adding_up = 0;  // requests whose stages differ from the server's TTFT
};

// One quantity that the server predicted, over the complete requests with a prediction.
struct PredictionSummary {
  std::string_view name;  // "TTFT", "TPOT", "E2EL"
  Distribution predicted_ms;
  Distribution actual_ms;  // from the send
  Distribution error;      // |predicted - actual| / actual
  double share_within_20_percent = 0;
};

// What happened between the end of the warm-up and the last arrival, while the load was on.
// Draining is not in it.
struct SteadyWindow {
  double seconds = 0;
  double request_throughput = 0;  // complete requests that ended in it, per second
  double output_throughput = 0;   // tokens that arrived in it, per second
};

struct Summary {
  VerdictCounts counts;
  bool simulated = false;       // the server said so of a measured request
  double duration_seconds = 0;  // end of the warm-up -> last end of a measured request
  double achieved_rate = 0;     // measured requests per second, by the times of sending
  int64_t input_tokens = 0;     // of complete requests, as all below
  int64_t output_tokens = 0;
  double request_throughput = 0;  // over duration_seconds, as all below
  double output_throughput = 0;
  double total_throughput = 0;
  double peak_output_throughput = 0;  // tokens in the best second
  int32_t peak_concurrency = 0;
  std::optional<SteadyWindow> steady;  // absent when all requests arrive at one time
  // Present with objectives.
  std::optional<double> goodput;  // good requests per second
  ShareInterval attainment;       // good requests among those judged

  Distribution lag;  // of the generator itself: due -> sent
  LatencySummary latency;
  StageSummary stages;                         // empty where the server reports none
  std::vector<PredictionSummary> predictions;  // likewise
};

Summary Summarize(const RunResult& run, const SummaryOptions& options);

// Complete, and within every objective.
bool IsGood(const RequestRecord& record, const SummaryOptions& options);

}  // namespace tandem::loadgen
