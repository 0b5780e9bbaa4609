#include "server/admin/field_metrics.h"

#include <cstdint>
#include <map>
#include <optional>

#include "absl/status/status.h"
#include "fmt/format.h"

namespace tandem {
namespace {

constexpr std::string_view kModelLabel = "model_name";

// The sums of what all workers hold at one moment.
struct FleetUse {
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t total_blocks = 0;
  int64_t used_blocks = 0;                    // blocks in sequences, reservations and copies
  std::map<int32_t, int64_t> blocks_by_size;  // number of blocks by the tokens of a block

  void Add(const v1::WorkerLoad& load) {
    running += load.running();
    waiting += load.waiting();
    total_blocks += load.total_blocks();
    used_blocks += load.total_blocks() - load.free_blocks() - load.kv().idle_blocks();
    if (load.block_tokens() > 0) blocks_by_size[load.block_tokens()] += load.total_blocks();
  }
};

struct FieldGauge {
  FieldMetric metric;
  double (*value)(const FleetUse& use);
};

constexpr FieldGauge kGauges[] = {
    {{"vllm:num_requests_running", "Sequences that workers compute"},
     [](const FleetUse& use) { return static_cast<double>(use.running); }},
    {{"vllm:num_requests_waiting", "Sequences that wait at workers or are being prefilled"},
     [](const FleetUse& use) { return static_cast<double>(use.waiting); }},
    {{"vllm:kv_cache_usage_perc",
      "Share of the KV blocks that are neither free nor only cached; 1 is all of them"},
     [](const FleetUse& use) {
       return use.total_blocks == 0
                  ? 0.0
                  : static_cast<double>(use.used_blocks) / static_cast<double>(use.total_blocks);
     }},
};

constexpr FieldMetric kCacheConfig = {
    "vllm:cache_config_info",
    "1; the labels say how many tokens a KV block has and how many there are"};

struct FieldCounter {
  FieldMetric metric;
  RequestCounter of_router;
  uint64_t (*of_worker)(const v1::WorkerLoad& load);
};

constexpr FieldCounter kCounters[] = {
    {{"vllm:num_preemptions_total", "Sequences that made room for others"},
     RequestCounter::kPreemptions,
     [](const v1::WorkerLoad& load) {
       return load.kv().preempted_recompute() + load.kv().preempted_swap();
     }},
    {{"vllm:prompt_tokens_total",
      "Prompt tokens of the requests served; of a worker: those that it computed"},
     RequestCounter::kPromptTokens,
     [](const v1::WorkerLoad& load) { return load.prompt_tokens(); }},
    {{"vllm:generation_tokens_total", "Tokens generated"},
     RequestCounter::kGenerationTokens,
     [](const v1::WorkerLoad& load) { return load.output_tokens(); }},
    {{"vllm:prefix_cache_queries_total", "Prompt tokens looked up in prefix caches"},
     RequestCounter::kPrefixQueries,
     [](const v1::WorkerLoad& load) { return load.kv().query_tokens(); }},
    {{"vllm:prefix_cache_hits_total", "Prompt tokens found in prefix caches"},
     RequestCounter::kPrefixHits,
     [](const v1::WorkerLoad& load) { return load.kv().hit_tokens(); }},
};

constexpr FieldMetric kSuccesses = {
    "vllm:request_success_total",
    "Requests that ended, by why: of several choices the longest says"};

struct EndedAs {
  std::string_view reason;
  RequestCounter counter;
};

constexpr EndedAs kReasons[] = {{"stop", RequestCounter::kStopped},
                                {"length", RequestCounter::kLength},
                                {"abort", RequestCounter::kAborted},
                                {"error", RequestCounter::kFailed}};

struct FieldHistogram {
  FieldMetric metric;
  RequestHistogram which;
};

constexpr FieldHistogram kHistograms[] = {
    {{"vllm:time_to_first_token_seconds", "Time from a request's arrival to its first token"},
     RequestHistogram::kTimeToFirstToken},
    {{"vllm:inter_token_latency_seconds", "Time from one token of a choice to the next"},
     RequestHistogram::kInterToken},
    {{"vllm:request_time_per_output_token_seconds",
      "Mean time per token after the first, of each request"},
     RequestHistogram::kTimePerOutputToken},
    {{"vllm:e2e_request_latency_seconds", "Time from a request's arrival to its end"},
     RequestHistogram::kEndToEnd},
    {{"vllm:request_queue_time_seconds",
      "Time that a request waited for a worker to begin and for room at a decode worker"},
     RequestHistogram::kQueue},
    {{"vllm:request_prefill_time_seconds", "Time that the computation of a prompt took"},
     RequestHistogram::kPrefill},
    {{"vllm:request_decode_time_seconds", "Time from the first token of a request to its last"},
     RequestHistogram::kDecode},
    {{"vllm:request_prompt_tokens", "Tokens of a request's prompt"},
     RequestHistogram::kPromptTokens},
    {{"vllm:request_generation_tokens", "Tokens generated for a request, all its choices together"},
     RequestHistogram::kGenerationTokens},
};

constexpr FieldMetric kEnds = {
    "tandem_request_ends_total",
    "Requests by the gRPC status that they ended with or were refused with"};

MetricFamily NewFamily(const FieldMetric& metric, MetricKind kind) {
  return {.name = std::string(metric.name), .help = std::string(metric.help), .kind = kind};
}

MetricLabels ModelLabels(const std::string& model) { return {{std::string(kModelLabel), model}}; }

void AddGauges(const std::string& model, const FleetUse& use, std::vector<MetricFamily>& families) {
  for (const FieldGauge& gauge : kGauges) {
    MetricFamily family = NewFamily(gauge.metric, MetricKind::kGauge);
    family.samples = {{.labels = ModelLabels(model), .value = gauge.value(use)}};
    families.push_back(std::move(family));
  }
  MetricFamily config = NewFamily(kCacheConfig, MetricKind::kGauge);
  for (const auto& [tokens, blocks] : use.blocks_by_size) {
    MetricLabels labels = ModelLabels(model);
    labels.emplace_back("block_size", fmt::format("{}", tokens));
    labels.emplace_back("num_gpu_blocks", fmt::format("{}", blocks));
    config.samples.push_back({.labels = std::move(labels), .value = 1});
  }
  families.push_back(std::move(config));
}

template <typename ValueOf>
void AddCounters(const std::string& model, const ValueOf& value_of,
                 std::vector<MetricFamily>& families) {
  for (const FieldCounter& counter : kCounters) {
    MetricFamily family = NewFamily(counter.metric, MetricKind::kCounter);
    family.samples = {
        {.labels = ModelLabels(model), .value = static_cast<double>(value_of(counter))}};
    families.push_back(std::move(family));
  }
}

MetricFamily Successes(const std::string& model, const RequestMetrics& requests) {
  MetricFamily family = NewFamily(kSuccesses, MetricKind::kCounter);
  for (const EndedAs& ended : kReasons) {
    MetricLabels labels = ModelLabels(model);
    labels.emplace_back("finished_reason", ended.reason);
    family.samples.push_back(
        {.labels = std::move(labels), .value = static_cast<double>(requests.count(ended.counter))});
  }
  return family;
}

}  // namespace

std::vector<FieldMetric> FieldMetrics() {
  std::vector<FieldMetric> all;
  for (const FieldGauge& gauge : kGauges) all.push_back(gauge.metric);
  all.push_back(kCacheConfig);
  for (const FieldCounter& counter : kCounters) all.push_back(counter.metric);
  all.push_back(kSuccesses);
  for (const FieldHistogram& histogram : kHistograms) all.push_back(histogram.metric);
  all.push_back(kEnds);
  return all;
}

std::vector<MetricFamily> RouterFieldMetrics(const v1::GetStatusResponse& status,
                                             const RequestMetrics& requests) {
  FleetUse use;
  for (const v1::WorkerStatus& worker : status.workers()) use.Add(worker.load());
  std::vector<MetricFamily> families;
  AddGauges(status.model(), use, families);
  AddCounters(
      status.model(),
      [&requests](const FieldCounter& counter) { return requests.count(counter.of_router); },
      families);
  families.push_back(Successes(status.model(), requests));
  for (const FieldHistogram& histogram : kHistograms) {
    MetricFamily family = NewFamily(histogram.metric, MetricKind::kHistogram);
    family.histograms = {
        {.labels = ModelLabels(status.model()), .state = requests.state(histogram.which)}};
    families.push_back(std::move(family));
  }
  return families;
}

std::vector<MetricFamily> WorkerFieldMetrics(const std::string& model, const v1::WorkerLoad& load) {
  FleetUse use;
  use.Add(load);
  std::vector<MetricFamily> families;
  AddGauges(model, use, families);
  AddCounters(
      model, [&load](const FieldCounter& counter) { return counter.of_worker(load); }, families);
  return families;
}

MetricFamily RequestEnds(const RequestMetrics& requests) {
  MetricFamily family = NewFamily(kEnds, MetricKind::kCounter);
  const std::array<uint64_t, kNumStatusCodes> ends = requests.ends();
  for (size_t code = 0; code < kNumStatusCodes; ++code) {
    const auto named = static_cast<absl::StatusCode>(code);
    family.samples.push_back({.labels = {{"code", absl::StatusCodeToString(named)}},
                              .value = static_cast<double>(ends[code])});
  }
  return family;
}

}  // namespace tandem
