#include "server/admin/metrics_table.h"

#include "base/simulated_model.h"
#include "tandem/v1/inference.pb.h"
#include "tandem/v1/telemetry.pb.h"

namespace tandem {
namespace {

using google::protobuf::DynamicCastToGenerated;
using google::protobuf::Message;

double IsReady(const Message& message) {
  const auto& worker = *DynamicCastToGenerated<v1::WorkerStatus>(&message);
  return worker.alive() && worker.load().not_ready().empty();
}

double HasFailed(const Message& message) {
  const auto& link = *DynamicCastToGenerated<v1::LinkStatus>(&message);
  return !link.failure().empty() || !link.probe_failure().empty();
}

double IsSimulated(const Message& message) {
  const auto& status = *DynamicCastToGenerated<v1::GetStatusResponse>(&message);
  return IsSimulatedModel(status.model());
}

// The step that the scalar beta is the time of (docs/cost_model.md).
double Beta(const Message& message) {
  constexpr double kContext = 512;
  const auto& cost = *DynamicCastToGenerated<v1::DecodeCost>(&message);
  if (cost.buckets_size() == 0) return 0;
  return 1e-3 *
         (cost.buckets(0).base_ms() + cost.sequence_ms() + kContext * cost.context_token_ms());
}

constexpr Metric kMetrics[] = {
    // The gRPC port and the log, of the router and of each worker.
    {"tandem_connections", "ConnectionUse.open", "Open connections to the gRPC port", kServerLabel},
    {"tandem_connections_limit", "ConnectionUse.limit", "Connections beyond it are refused",
     kServerLabel},
    {"tandem_connections_refused_total", "ConnectionUse.refused",
     "Connections closed because of the limit", kServerLabel},
    {"tandem_log_lines_dropped_total", "GetStatusResponse.log_lines_dropped",
     "Lines of the log that nobody read in time", kServerLabel},
    {"tandem_log_lines_dropped_total", "WorkerLoad.log_lines_dropped", "", kServerLabel},
    {"tandem_tls_refused_total", "TlsRefusal.refused",
     "Connections and calls refused because of certificates or identities"},

    // The router.
    {"tandem_ready", "GetStatusResponse.ready", "1 when at least one route can be served"},
    {"tandem_simulated",
     "GetStatusResponse",
     "1 when the workers are simulated devices: every other figure here is simulated then",
     {},
     {},
     IsSimulated},
    {"tandem_requests_in_flight", "GetStatusResponse.requests_in_flight",
     "Requests that have not ended"},
    {"tandem_requests_total", "GetStatusResponse.requests_total", "Requests taken"},
    {"tandem_active_tenants", "AdmissionUse.active_tenants",
     "Tenants that have requests in flight"},
    {"tandem_admission_refused_total", "AdmissionUse.refused_in_flight",
     "Requests that the router refused, by the limit that they met", "limit", "in_flight"},
    {"tandem_admission_refused_total", "AdmissionUse.refused_tenant_share", "", "limit",
     "tenant_share"},
    {"tandem_admission_refused_total", "AdmissionUse.refused_tenant_in_flight", "", "limit",
     "tenant_in_flight"},
    {"tandem_admission_refused_total", "AdmissionUse.refused_tenant_requests", "", "limit",
     "tenant_requests"},
    {"tandem_admission_refused_total", "AdmissionUse.refused_tenant_tokens", "", "limit",
     "tenant_tokens"},
    {"tandem_admission_refused_total", "AdmissionUse.shed_deadline", "", "limit", "deadline"},
    {"tandem_admission_refused_total", "AdmissionUse.shed_slo", "", "limit", "ttft_slo"},
    {"tandem_api_keys", "AccessUse.keys", "API keys that are let in"},
    {"tandem_access_refused_total", "AccessUse.refused_missing",
     "Calls refused because of their API key", "why", "missing"},
    {"tandem_access_refused_total", "AccessUse.refused_unknown", "", "why", "unknown"},
    {"tandem_access_refused_total", "AccessUse.refused_scope", "", "why", "scope"},
    {"tandem_access_reloads_total", "AccessUse.reloads", "Changes of the access file", "result",
     "taken"},
    {"tandem_access_reloads_total", "AccessUse.reloads_refused", "", "result", "refused"},
    {"tandem_leases_lapsed_total", "GetStatusResponse.leases_lapsed",
     "Workers that sent no heartbeat for a whole lease"},
    {"tandem_tokenize_texts", "TokenizeUse.short_texts",
     "Texts that wait to be tokenized or are being tokenized", "length", "short"},
    {"tandem_tokenize_texts", "TokenizeUse.long_texts", "", "length", "long"},
    {"tandem_tokenize_long_text_bytes", "TokenizeUse.long_text_bytes",
     "Bytes of the long texts among these"},
    {"tandem_tokenized_texts_total", "TokenizeUse.texts_total", "Texts tokenized"},
    {"tandem_tokenize_refused_total", "TokenizeUse.refused",
     "Texts refused because too much text waited"},
    {"tandem_unread_answer_bytes", "AnswerBufferUse.bytes",
     "Bytes of answers that clients have not read"},
    {"tandem_answers_ended_unread_total", "AnswerBufferUse.refused",
     "Answers ended because clients did not read", "why", "limit"},
    {"tandem_answers_ended_unread_total", "AnswerBufferUse.unread", "", "why", "deadline"},
    {"tandem_resumes_total", "ResumeCause.resumes", "Requests that continued at other workers"},
    {"tandem_resumes_given_up_total", "ResumeUse.gave_up",
     "Requests that no other worker could continue"},
    {"tandem_resume_pause_p50_seconds", "ResumeUse.p50_ms",
     "Recent pauses of requests that continued at other workers, from the noticed loss"},
    {"tandem_resume_pause_p99_seconds", "ResumeUse.p99_ms",
     "Recent pauses of requests that continued at other workers, from the noticed loss"},
    {"tandem_resume_waited_p50_seconds", "ResumeTimes.p50_ms",
     "The same pauses as clients saw them, from the last token before the loss"},
    {"tandem_resume_waited_p99_seconds", "ResumeTimes.p99_ms",
     "The same pauses as clients saw them, from the last token before the loss"},
    {"tandem_routed_total", "RoutingUse.unified", "Requests by the route that they were sent on",
     "route", "unified"},
    {"tandem_routed_total", "RoutingUse.disaggregated", "", "route", "disaggregated"},
    {"tandem_routing_decisions_total", "RoutingUse.lowest_cost",
     "The same requests by why they were sent there", "why", "lowest_cost"},
    {"tandem_routing_decisions_total", "RoutingUse.within_error", "", "why", "within_error"},
    {"tandem_routing_decisions_total", "RoutingUse.not_measured", "", "why", "not_measured"},
    {"tandem_reroutes_total", "RerouteUse.other_worker",
     "Requests that a worker had no room for, or that were moved out of its queue", "kind",
     "other_worker"},
    {"tandem_reroutes_total", "RerouteUse.to_unified", "", "kind", "to_unified"},
    {"tandem_reroutes_total", "RerouteUse.to_disaggregated", "", "kind", "to_disaggregated"},
    {"tandem_reroutes_total", "RerouteUse.asked_again", "", "kind", "asked_again"},
    {"tandem_reroutes_total", "RerouteUse.moved", "", "kind", "moved"},

    {"tandem_output_lengths_total", "OutputLengthUse.stopped",
     "Outputs whose length was learned, by how they ended", "how", "stopped"},
    {"tandem_output_lengths_total", "OutputLengthUse.capped", "", "how", "capped"},
    {"tandem_output_lengths_total", "OutputLengthUse.interrupted", "", "how", "interrupted"},
    {"tandem_output_length_tokens", "OutputLengthUse.mean_tokens",
     "Mean length of recent outputs, and what was predicted", "what", "actual"},
    {"tandem_output_length_tokens", "OutputLengthUse.predicted_tokens", "", "what", "predicted"},
    {"tandem_output_length_error_tokens", "OutputLengthUse.error_tokens",
     "Mean distance between predicted median and actual length of recent outputs"},
    {"tandem_output_length_within_p90", "OutputLengthUse.within_p90",
     "Share of recent outputs within their predicted 90th percentile"},
    // How well the router's predictions of requests came true.
    {"tandem_route_decisions_total", "PredictionUse.decisions",
     "Decisions on where a request goes, those after a refusal or a loss included"},
    {"tandem_explained_requests", "PredictionUse.kept_requests",
     "Requests whose decisions tandem explain can show"},
    {"tandem_explained_requests_bytes", "PredictionUse.kept_bytes", "Memory for them"},
    {"tandem_predictions_not_compared_total", "PredictionUse.not_compared",
     "Requests that ended without a prediction that could be compared"},
    {"tandem_predictions_compared_total", "PredictionError.compared",
     "Requests whose prediction was compared with what came true; without worker: of all workers"},
    {"tandem_prediction_error_ratio", "PredictionError.error",
     "Mean of |predicted - actual| / actual of recent requests"},
    {"tandem_prediction_bias_ratio", "PredictionError.bias",
     "Mean of (predicted - actual) / actual of recent requests; above 0: predicted too long"},
    {"tandem_prediction_coverage_ratio", "PredictionError.coverage",
     "Share of recent requests that came true within the stated interval; 0.9 is right"},
    {"tandem_prediction_interval_ratio", "PredictionError.interval",
     "Half of the interval stated for the next request, relative to what is predicted; 0: none"},

    // What the router predicts of prefix caches, and where sessions are.
    {"tandem_prefix_index_blocks", "PrefixIndexUse.entries",
     "Cached blocks that the router knows, counted for every worker that has them"},
    {"tandem_prefix_index_bytes", "PrefixIndexUse.bytes", "Memory of the index"},
    {"tandem_prefix_index_changes_total", "PrefixIndexUse.added", "Changes that workers reported",
     "what", "added"},
    {"tandem_prefix_index_changes_total", "PrefixIndexUse.removed", "", "what", "removed"},
    {"tandem_prefix_index_forgotten_total", "PrefixIndexUse.forgotten",
     "Blocks dropped because the index was full"},
    {"tandem_prefix_index_reports_total", "PrefixIndexUse.resets",
     "Reports of workers that described a cache from scratch, or that were not applied", "kind",
     "from_scratch"},
    {"tandem_prefix_index_reports_total", "PrefixIndexUse.refused", "", "kind", "refused"},
    {"tandem_prefix_lookups_total", "PrefixIndexUse.lookups",
     "Prompts looked up for routing decisions"},
    {"tandem_prefix_lookup_hits_total", "PrefixIndexUse.hits",
     "Of these, prompts that some worker was predicted to have cached in part"},
    {"tandem_prefix_prediction_tokens_total", "PrefixIndexUse.prompt_tokens",
     "Tokens of computed prompts: all, predicted to be cached, cached, and the sum of the "
     "differences between these two",
     "kind", "prompt"},
    {"tandem_prefix_prediction_tokens_total", "PrefixIndexUse.predicted_tokens", "", "kind",
     "predicted"},
    {"tandem_prefix_prediction_tokens_total", "PrefixIndexUse.cached_tokens", "", "kind", "cached"},
    {"tandem_prefix_prediction_tokens_total", "PrefixIndexUse.error_tokens", "", "kind", "error"},
    {"tandem_sessions", "SessionUse.entries", "Sessions whose latest workers are remembered"},
    {"tandem_session_requests_total", "SessionUse.kept",
     "Requests of known sessions, by whether they went to the session's latest workers", "where",
     "kept"},
    {"tandem_session_requests_total", "SessionUse.moved", "", "where", "moved"},
    {"tandem_sessions_forgotten_total", "SessionUse.forgotten",
     "Sessions dropped because there were too many"},

    // Each worker.
    {"tandem_worker_ready", "WorkerStatus", "1 when it gets requests", "", "", IsReady},
    {"tandem_worker_starting", "WorkerLoad.starting",
     "1 while it loads weights or warms up: others come first"},
    {"tandem_worker_heartbeat_age_seconds", "WorkerStatus.heartbeat_age_ms",
     "Time since its latest heartbeat"},
    {"tandem_worker_running", "WorkerLoad.running", "Sequences computed"},
    {"tandem_worker_waiting", "WorkerLoad.waiting", "Sequences that wait"},
    {"tandem_worker_requests_total", "WorkerLoad.requests_finished", "Requests ended"},
    {"tandem_worker_prompt_tokens_total", "WorkerLoad.prompt_tokens", "Prompt tokens computed"},
    {"tandem_worker_output_tokens_total", "WorkerLoad.output_tokens", "Tokens sampled"},
    {"tandem_kv_evictions_total", "WorkerLoad.evictions", "Prompts that gave up KV at their end"},
    {"tandem_kv_evicted_tokens_total", "WorkerLoad.evicted_tokens",
     "Tokens of prompts and output whose KV was given up"},

    {"tandem_worker_decode_context_tokens", "WorkerLoad.decode_context_tokens",
     "Context of the sequences that decode, together"},
    {"tandem_worker_expected_decode_tokens", "WorkerLoad.expected_decode_tokens",
     "Tokens that these are expected to decode until they end"},

    // The cost model of each worker.
    {"tandem_step_alpha_seconds", "PrefillCost.token_ms",
     "Time that a prompt token adds to a step, by the worker's cost model; 0: not known"},
    {"tandem_step_beta_seconds", "DecodeCost",
     "Time to decode one sequence with 512 tokens of context; 0: not known", "", "", Beta},
    {"tandem_step_error_ratio", "CostModel.error",
     "Mean of |predicted - measured| / measured of the latest steps"},
    {"tandem_step_drift_ratio", "CostModel.drift",
     "Mean of measured / predicted of the latest steps; 0: none has run"},
    {"tandem_step_model_revisions_total", "CostModel.revision",
     "Times that the cost model was set or changed"},
    {"tandem_steps_predicted_total", "CostModel.steps",
     "Steps whose time was compared with the cost model"},

    // The KV store of each worker.
    {"tandem_kv_blocks", "WorkerLoad.total_blocks",
     "KV blocks of the worker; docs/kv_store.md explains the states", "state", "total"},
    {"tandem_kv_blocks", "WorkerLoad.free_blocks", "", "state", "free"},
    {"tandem_kv_blocks", "KvUse.cached_blocks", "", "state", "cached"},
    {"tandem_kv_blocks", "KvUse.idle_blocks", "", "state", "idle"},
    {"tandem_kv_blocks", "KvUse.shared_blocks", "", "state", "shared"},
    {"tandem_kv_blocks", "KvUse.pinned_blocks", "", "state", "pinned"},
    {"tandem_kv_blocks", "KvUse.swapped_blocks", "", "state", "swapped"},
    {"tandem_prefix_query_tokens_total", "KvUse.query_tokens",
     "Prompt tokens looked up in the prefix cache"},
    {"tandem_prefix_hit_tokens_total", "KvUse.hit_tokens",
     "Prompt tokens found in the prefix cache"},
    {"tandem_preemptions_total", "KvUse.preempted_recompute", "Sequences that made room for others",
     "how", "recompute"},
    {"tandem_preemptions_total", "KvUse.preempted_swap", "", "how", "swap"},
    {"tandem_host_kv_budget_bytes", "KvUse.host_budget_bytes",
     "Host memory for KV that leaves the device"},
    {"tandem_host_kv_used_bytes", "KvUse.host_used_bytes",
     "The part of that memory which is in use"},
    {"tandem_host_kv_encoded_bytes_total", "KvUse.host_raw_bytes",
     "KV that was encoded for that memory, before (raw) and after (stored)", "size", "raw"},
    {"tandem_host_kv_encoded_bytes_total", "KvUse.host_stored_bytes", "", "size", "stored"},
    {"tandem_host_kv_unfit_blocks_total", "KvUse.host_unfit_blocks",
     "KV blocks that were not kept in that memory, because they were too large once encoded or "
     "came "
     "before the codec knew this KV"},

    // The hand-offs of each worker.
    {"tandem_handoffs", "HandoffUse.sending", "Hand-offs now: streams that are sent; reservations",
     "state", "sending"},
    {"tandem_handoffs", "HandoffUse.reservations", "", "state", "awaited"},
    {"tandem_handoffs", "HandoffUse.waiting_reservations", "", "state", "waiting"},
    {"tandem_handoffs", "HandoffUse.draining_reservations", "", "state", "draining"},
    {"tandem_handoffs_total", "HandoffUse.sent", "Hand-offs, by how they ended", "what", "sent"},
    {"tandem_handoffs_total", "HandoffUse.received", "", "what", "received"},
    {"tandem_handoffs_total", "HandoffUse.retried", "", "what", "retried"},
    {"tandem_handoffs_total", "HandoffUse.lapsed", "", "what", "lapsed"},
    {"tandem_handoffs_total", "HandoffUse.refused", "", "what", "refused"},
    {"tandem_refused_frames_total", "HandoffUse.corrupted_frames",
     "Frames of peers that were refused", "why", "corrupted"},
    {"tandem_refused_frames_total", "HandoffUse.stale_frames", "", "why", "stale"},
    {"tandem_refused_frames_total", "HandoffUse.unauthenticated_frames", "", "why",
     "unauthenticated"},
    {"tandem_refused_connections_total", "HandoffUse.connections_closed",
     "Connections of peers closed because of refused frames"},
    {"tandem_transfer_buffer_bytes", "HandoffUse.buffer_bytes", "Memory for KV under way"},
    {"tandem_kv_sent_bytes_total", "WorkerLoad.kv_bytes_sent",
     "KV sent to other workers, headers included"},
    {"tandem_kv_received_bytes_total", "WorkerLoad.kv_bytes_received",
     "KV received from other workers, headers included"},

    {"tandem_kv_codec_bytes_total", "HandoffUse.codec_kv_bytes",
     "KV that was encoded for decode workers (kv), and what was sent for it (wire)", "size", "kv"},
    {"tandem_kv_codec_bytes_total", "HandoffUse.codec_wire_bytes", "", "size", "wire"},
    {"tandem_kv_codec_part_kv_bytes_total", "HandoffUse.codec_k_kv_bytes",
     "KV that was encoded for decode workers: K and V apart", "part", "k"},
    {"tandem_kv_codec_part_kv_bytes_total", "HandoffUse.codec_v_kv_bytes", "", "part", "v"},
    {"tandem_kv_codec_part_wire_bytes_total", "HandoffUse.codec_k_wire_bytes",
     "What was sent for KV that was encoded: K and V apart", "part", "k"},
    {"tandem_kv_codec_part_wire_bytes_total", "HandoffUse.codec_v_wire_bytes", "", "part", "v"},
    {"tandem_kv_codec_streams_total", "HandoffUse.raw_streams",
     "Hand-offs by the codec that was chosen for them", "codec", "raw"},
    {"tandem_kv_codec_streams_total", "HandoffUse.f3_streams", "", "codec", "f3"},
    {"tandem_kv_codec_streams_total", "HandoffUse.mask_rice_streams", "", "codec", "mask-rice"},
    {"tandem_kv_codec_streams_total", "HandoffUse.quantised_streams", "", "codec", "quantised"},
    {"tandem_kv_unencoded_extents_total", "HandoffUse.unencoded_extents",
     "Extents sent as they are because too much KV waited to be encoded or acknowledged"},
    {"tandem_kv_codec_calibrations_total", "HandoffUse.codec_calibrations",
     "How often the tables of the codecs were made: once, and when they no longer fitted"},
    {"tandem_kv_encode_bytes_per_second", "HandoffUse.f3_encode_gb_per_s",
     "KV that a thread encodes; 0: not measured", "codec", "f3"},
    {"tandem_kv_encode_bytes_per_second", "HandoffUse.mask_rice_encode_gb_per_s", "", "codec",
     "mask-rice"},
    {"tandem_kv_decode_bytes_per_second", "HandoffUse.f3_decode_gb_per_s",
     "KV that a thread decodes; 0: not measured", "codec", "f3"},
    {"tandem_kv_decode_bytes_per_second", "HandoffUse.mask_rice_decode_gb_per_s", "", "codec",
     "mask-rice"},

    {"tandem_kv_dumps_total", "HandoffUse.kv_dumps",
     "Hand-offs whose KV was written to a file, or was not because of the limit or an error",
     "what", "written"},
    {"tandem_kv_dumps_total", "HandoffUse.kv_dumps_skipped", "", "what", "skipped"},
    {"tandem_kv_dump_bytes", "HandoffUse.kv_dump_bytes", "Files of the KV of hand-offs"},

    // Each link between two workers.
    {"tandem_link_in_use", "LinkStatus.in_use",
     "1 for the link that the latest hand-off to this peer took"},
    {"tandem_link_failed", "LinkStatus", "1 after a hand-off or probe failed, until one succeeds",
     "", "", HasFailed},
    {"tandem_link_probe_bytes_per_second", "LinkStatus.probe_gb_per_s", "Rate of the latest probe"},
    {"tandem_link_best_probe_bytes_per_second", "LinkStatus.best_probe_gb_per_s",
     "Rate of the best probe since the peer started"},
    {"tandem_link_bytes_per_second", "LinkStatus.gb_per_s",
     "Recent rate while the link was full; 0: not measured"},
    {"tandem_link_fastest_bytes_per_second", "LinkStatus.fastest_gb_per_s",
     "Fastest recent rate; 0: not measured"},
    {"tandem_link_kv_ratio", "LinkStatus.kv_ratio",
     "Bytes of KV for each byte that is sent; 0: not known"},
    {"tandem_link_setup_seconds", "LinkStatus.setup_us", "Time to make a connection"},
    {"tandem_link_operation_seconds", "LinkStatus.operation_us", "Time per frame"},
    {"tandem_link_bytes_total", "LinkStatus.bytes", "Payload carried"},
    {"tandem_link_in_flight_bytes", "LinkStatus.bytes_in_flight",
     "Bytes sent and not acknowledged"},
    {"tandem_link_resent_frames_total", "LinkStatus.resent_frames",
     "Frames that the peer requested again"},
    {"tandem_link_fallbacks_total", "LinkStatus.fallbacks",
     "Times that a hand-off took a worse link because this one failed"},
};

}  // namespace

std::span<const Metric> Metrics() { return kMetrics; }

}  // namespace tandem
