#include "server/commands/router_flags.h"

#include "CLI/CLI.hpp"
#include "router/admission/shedding.h"
#include "router/output_length/output_length_predictor.h"
#include "router/policy/policies.h"
#include "server/commands/kv_flags.h"
#include "server/commands/number_flag.h"
#include "server/commands/size_flag.h"

namespace tandem {
namespace {

void AddCostFlags(CLI::App& app, RouterTuning& tuning) {
  const std::string group = "Routing by cost (--policy auto)";
  app.add_option("--ttft-slo-ms", tuning.ttft_slo_ms,
                 "time to the first token that requests should keep to which bring no ttft_slo_ms; "
                 "default: none")
      ->check(Positive())
      ->group(group);
  app.add_option("--tpot-slo-ms", tuning.tpot_slo_ms,
                 "the same for the time from token to token after the first")
      ->check(Positive())
      ->group(group);
  app.add_option("--routing-error", tuning.policy_options.least_error,
                 "relative error that predictions are taken to have at least: a request leaves the "
                 "least loaded workers only for a gain beyond the error")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str()
      ->group(group);
}

void AddLimitFlags(CLI::App& app, RouterTuning& tuning) {
  const std::string group = "Limits of the router";
  app.add_option("--max-in-flight", tuning.max_in_flight,
                 "choices of all requests together; more are answered RESOURCE_EXHAUSTED")
      ->check(Positive())
      ->capture_default_str()
      ->group(group);
  app.add_option("--shed", tuning.shed,
                 "which requests are answered RESOURCE_EXHAUSTED because their first token is "
                 "predicted to come too late: deadline (after their deadline), slo (these, and "
                 "those that would miss their TTFT SLO), off")
      ->check(CLI::IsMember(std::vector<std::string>(kSheddingNames.begin(), kSheddingNames.end())))
      ->capture_default_str()
      ->group(group);
  app.add_option("--max-choices", tuning.max_choices, "largest n or best_of of a request")
      ->check(Positive())
      ->capture_default_str()
      ->group(group);
  app.add_option("--tokenize-threads", tuning.tokenize_threads,
                 "threads that tokenize texts; with two or more, one takes short texts only")
      ->check(CLI::Range(1, 64))
      ->capture_default_str()
      ->group(group);
  app.add_option("--tokenize-queue-bytes", tuning.tokenize_queue_bytes,
                 "long texts (above 16 KiB) that may wait to be tokenized, as 32MiB; more are "
                 "answered RESOURCE_EXHAUSTED")
      ->transform(SizeFlag(Kilo::k1024))
      ->capture_default_str()
      ->group(group);
  app.add_option("--max-message-bytes", tuning.max_message_bytes, "of one request, as 4MiB")
      ->transform(SizeFlag(Kilo::k1024))
      ->check(CLI::Range(uint64_t{1024}, uint64_t{1} << 29))
      ->capture_default_str()
      ->group(group);
  app.add_option("--stream-buffer-bytes", tuning.stream_buffer_bytes,
                 "what may wait for a slow reader before its request is ended")
      ->transform(SizeFlag(Kilo::k1024))
      ->capture_default_str()
      ->group(group);
  app.add_option("--answer-buffer-bytes", tuning.answer_buffer_bytes,
                 "what clients have not read of all answers together, as 256MiB; more answers "
                 "of best_of and beam searches are ended with RESOURCE_EXHAUSTED")
      ->transform(SizeFlag(Kilo::k1024))
      ->capture_default_str()
      ->group(group);
  app.add_option("--max-request-seconds", tuning.max_request_seconds,
                 "deadline of requests that bring none, or a later one; also for reading what was "
                 "answered")
      ->check(Positive())
      ->capture_default_str()
      ->group(group);
  app.add_option("--max-resumes", tuning.max_resumes,
                 "how often a request may go on elsewhere after a worker was lost")
      ->check(NotNegative())
      ->capture_default_str()
      ->group(group);
}

void AddParserFlags(CLI::App& app, RouterTuning& tuning) {
  const std::string group = "Answers to chats";
  app.add_option(
         "--tool-parser", tuning.parsers.tools,
         "how calls of tools are found in what the model writes; auto: as its chat template "
         "writes them")
      ->check(CLI::IsMember(ToolParserNames()))
      ->capture_default_str()
      ->group(group);
  app.add_option("--reasoning-parser", tuning.parsers.reasoning,
                 "how reasoning is found in it; think: between <think> and </think>")
      ->check(CLI::IsMember(ReasoningParserNames()))
      ->capture_default_str()
      ->group(group);
}

void AddLeaseFlags(CLI::App& app, RouterTuning& tuning) {
  const std::string group = "Leases of workers";
  app.add_option("--max-workers", tuning.max_workers,
                 "workers that may be registered; more are answered RESOURCE_EXHAUSTED")
      ->check(Positive())
      ->capture_default_str()
      ->group(group);
  app.add_option("--lease-ms", tuning.lease_ms, "a worker not heard of for so long is gone")
      ->check(Positive())
      ->capture_default_str()
      ->group(group);
  app.add_option("--heartbeat-ms", tuning.heartbeat_ms, "how often workers shall report")
      ->check(Positive())
      ->capture_default_str()
      ->group(group);
}

}  // namespace

void AddRouterFlags(CLI::App& app, RouterTuning& tuning) {
  app.add_option(
         "--canary-seconds", tuning.canary_seconds,
         "where no request has passed a route for so long, the router sends one of two tokens "
         "over it, and is not ready where none passes; 0: it does not try")
      ->check(NotNegative())
      ->capture_default_str();
  app.add_option("--policy", tuning.policy, "how route=auto and workers are chosen")
      ->check(CLI::IsMember(RoutingPolicyNames()))
      ->capture_default_str();
  app.add_option("--classic-parameters", tuning.classic_parameters,
                 "parameter file of tandem profile with the scalars of --policy classic");
  app.add_option(
         "--output-predictor", tuning.output_predictor,
         "how lengths of outputs are predicted: adaptive (learns their distribution), window "
         "(mean of the latest)")
      ->check(CLI::IsMember(OutputLengthPredictorNames()))
      ->capture_default_str();
  AddCostFlags(app, tuning);
  app.add_option(
         "--quality", tuning.quality,
         "what the KV of a prompt may lose on its way to a decode worker, for requests that "
         "bring no kv_quality: exact (nothing), near-strict, near, compact or tiny (evicts as "
         "well)")
      ->check(KvQualityText())
      ->capture_default_str();
  app.add_option("--evict", tuning.evict,
                 "which KV of a prompt is given up once the prompt is computed, for requests that "
                 "bring no kv_eviction: none, or POLICY:RATIO as h2o-ema:2")
      ->check(TokenEvictionText())
      ->capture_default_str();
  app.add_option("--prefix-index-bytes", tuning.prefix_index_bytes,
                 "memory for what workers report of their prefix caches, as 256MiB; with less than "
                 "all of it, hits are underestimated; 0: hits are not predicted")
      ->transform(SizeFlag(Kilo::k1024))
      ->capture_default_str();
  app.add_option("--session-affinity", tuning.session_affinity,
                 "on: requests of one session_id go to the workers that served it last")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  app.add_flag("--log-requests", tuning.log_requests,
               "log a line for each request that ends, with its tenant, at every --log-level; "
               "default: at info, without the tenant");
  AddParserFlags(app, tuning);
  AddLimitFlags(app, tuning);
  AddLeaseFlags(app, tuning);
}

void AddAccessFlag(CLI::App& app, std::string& path) {
  app.add_option(
      "--access-file", path,
      "JSON file with hashes of API keys, which are asked for from then on, and limits of "
      "tenants (`tandem keys` writes it); changes are taken while the router runs");
}

void AddMetricsFlag(CLI::App& app, std::optional<uint16_t>& port) {
  app.add_option(
      "--metrics-port", port,
      "serve /metrics, for Prometheus, /livez, /readyz and /healthz there; 0: a free one; "
      "default: not at all");
}

void AddMetricsTlsFlag(CLI::App& app, std::string& tls) {
  app.add_option(
         "--metrics-tls", tls,
         "whether the port of --metrics-port uses TLS: off; on: with --tls-cert; require: and "
         "clients need a certificate of --tls-ca with the identity of a client or an admin")
      ->check(CLI::IsMember({"off", "on", "require"}))
      ->capture_default_str();
}

}  // namespace tandem
