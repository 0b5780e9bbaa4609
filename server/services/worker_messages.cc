#include "server/services/worker_messages.h"

#include <chrono>
#include <optional>
#include <string>

#include "base/status.h"
#include "router/cluster/worker_costs.h"
#include "router/request/constraints_message.h"
#include "transfer/fabric/endpoints.h"

namespace tandem {
namespace {

// The longest time for which a decode worker holds blocks for a sender from which it hears nothing.
constexpr std::chrono::hours kLongestLease(24);

int64_t Micros(Duration duration) {
  return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

SamplingParams ToSamplingParams(const v1::SamplingParams& params) {
  return {.temperature = params.temperature(),
          .top_k = params.top_k(),
          .top_p = params.top_p(),
          .min_p = params.min_p(),
          .repetition_penalty = params.repetition_penalty(),
          .presence_penalty = params.presence_penalty(),
          .frequency_penalty = params.frequency_penalty(),
          .seed = params.seed(),
          .num_logprobs = params.has_logprobs() ? params.logprobs() : -1};
}

v1::TokenLogprob ToLogprob(int32_t token_id, float logprob) {
  v1::TokenLogprob entry;
  entry.set_token_id(token_id);
  entry.set_logprob(logprob);
  return entry;
}

v1::WorkerFinish::Reason ToReason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return v1::WorkerFinish::REASON_UNSPECIFIED;
    case FinishReason::kStop:
      return v1::WorkerFinish::REASON_STOP;
    case FinishReason::kLength:
      return v1::WorkerFinish::REASON_LENGTH;
    case FinishReason::kHandedOff:
      return v1::WorkerFinish::REASON_HANDED_OFF;
    case FinishReason::kEnded:
      return v1::WorkerFinish::REASON_ENDED;
  }
  return v1::WorkerFinish::REASON_UNSPECIFIED;
}

BeamParams::EarlyStopping ToEarlyStopping(v1::BeamSearch::EarlyStopping early_stopping) {
  switch (early_stopping) {
    case v1::BeamSearch::EARLY_STOPPING_FIRST:
      return BeamParams::EarlyStopping::kFirst;
    case v1::BeamSearch::EARLY_STOPPING_NEVER:
      return BeamParams::EarlyStopping::kNever;
    default:  // protobuf enums are open; routers pass on known values only
      return BeamParams::EarlyStopping::kHeuristic;
  }
}

std::optional<BeamParams> ToBeamParams(const v1::SequenceRequest& sequence) {
  if (!sequence.has_beam_search()) return std::nullopt;
  const v1::BeamSearch& beams = sequence.beam_search();
  return BeamParams{.width = beams.beam_width(),
                    .length_penalty = beams.length_penalty(),
                    .early_stopping = ToEarlyStopping(beams.early_stopping())};
}

SampledToken ToSampledToken(const v1::TokenLogprobs& logprobs) {
  SampledToken token{.token_id = logprobs.sampled().token_id(),
                     .logprob = logprobs.sampled().logprob(),
                     .top = {}};
  for (const v1::TokenLogprob& top : logprobs.top()) {
    token.top.push_back({.token_id = top.token_id(), .logprob = top.logprob()});
  }
  return token;
}

void SetCodecUse(const EngineStats& stats, v1::HandoffUse& use) {
  PartBytes k;
  PartBytes v;
  for (const WireCodecStats& codec : stats.wire_codecs) {
    // kRaw is left out: blocks that are not full are always packed without a codec, and would hide
    // how well the codecs compress.
    if (codec.codec != CodecId::kRaw) {
      k.Add(codec.k);
      v.Add(codec.v);
    }
    switch (codec.codec) {
      case CodecId::kRaw:
        use.set_raw_streams(codec.streams);
        break;
      case CodecId::kF3:
        use.set_f3_streams(codec.streams);
        use.set_f3_encode_gb_per_s(codec.encode_gigabytes_per_second);
        use.set_f3_decode_gb_per_s(codec.decode_gigabytes_per_second);
        break;
      case CodecId::kMaskRice:
        use.set_mask_rice_streams(codec.streams);
        use.set_mask_rice_encode_gb_per_s(codec.encode_gigabytes_per_second);
        use.set_mask_rice_decode_gb_per_s(codec.decode_gigabytes_per_second);
        break;
      case CodecId::kRounded:
        use.set_rounded_streams(use.rounded_streams() + codec.streams);
        break;
      case CodecId::kBytePlane:  // not used for hand-offs
        break;
    }
  }
  use.set_codec_kv_bytes(k.kv_bytes + v.kv_bytes);
  use.set_codec_wire_bytes(k.wire_bytes + v.wire_bytes);
  use.set_codec_k_kv_bytes(k.kv_bytes);
  use.set_codec_k_wire_bytes(k.wire_bytes);
  use.set_codec_v_kv_bytes(v.kv_bytes);
  use.set_codec_v_wire_bytes(v.wire_bytes);
  use.set_unencoded_extents(stats.unencoded_extents);
  use.set_codec_calibrations(stats.codec_calibrations);
  use.set_kv_dumps(stats.kv_dumps.written);
  use.set_kv_dumps_skipped(stats.kv_dumps.skipped);
  use.set_kv_dump_bytes(stats.kv_dumps.bytes);
}

// Parses a policy of KV eviction. The router has checked the text; a policy that only a newer
// router knows evicts nothing at this worker.
std::optional<TokenEviction> ToTokenEviction(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const absl::StatusOr<TokenEviction> eviction = ParseTokenEviction(text);
  return eviction.ok() ? std::optional(*eviction) : std::nullopt;
}

// A quality that only a newer router knows becomes kExact, which loses nothing.
KvQuality ToKvQuality(const std::string& name) {
  return KvQualityFromName(name).value_or(KvQuality::kExact);
}

// What a decode worker can read, of the codecs that this build knows; a newer worker may offer
// others.
ReadableKv ToReadableKv(const v1::KvTarget& target) {
  ReadableKv reads;
  for (const CodecId id : {CodecId::kRaw, CodecId::kF3, CodecId::kMaskRice, CodecId::kRounded}) {
    const auto& names = target.codecs();
    if (std::ranges::find(names, CodecName(id)) != names.end()) reads.codecs.push_back(id);
  }
  reads.tables = {target.codec_tables().begin(), target.codec_tables().end()};
  return reads;
}

// The engine's part of the report on hand-offs; the transport adds what it has refused.
v1::HandoffUse ToHandoffUse(const EngineStats& stats) {
  v1::HandoffUse use;
  use.set_sending(stats.handoffs);
  use.set_reservations(stats.reservations);
  use.set_waiting_reservations(stats.waiting_reservations);
  use.set_draining_reservations(stats.draining_reservations);
  use.set_sent(stats.handoff_counts.sent);
  use.set_received(stats.handoff_counts.received);
  use.set_retried(stats.handoff_counts.retried);
  use.set_lapsed(stats.handoff_counts.lapsed);
  use.set_refused(stats.handoff_counts.refused);
  SetCodecUse(stats, use);
  return use;
}

v1::KvUse ToKvUse(const EngineStats& stats) {
  const KvStats& kv = stats.kv;
  v1::KvUse use;
  use.set_shared_blocks(kv.shared_blocks);
  use.set_cached_blocks(kv.cached_blocks);
  use.set_idle_blocks(kv.idle_blocks);
  use.set_pinned_blocks(kv.pinned_blocks);
  use.set_swapped_blocks(kv.swapped_blocks);
  use.set_host_prefix_blocks(kv.host_prefix_blocks);
  use.set_host_budget_bytes(kv.host_budget_bytes);
  use.set_host_used_bytes(kv.host_used_bytes);
  use.set_fragmentation(stats.fragmentation);
  use.set_hit_tokens(kv.hit_tokens);
  use.set_query_tokens(kv.query_tokens);
  use.set_copied_blocks(kv.copied_blocks);
  use.set_evicted_blocks(kv.evicted_blocks);
  use.set_preempted_recompute(stats.scheduler.preempted_recompute);
  use.set_preempted_swap(stats.scheduler.preempted_swap);
  use.set_swapped_out_blocks(kv.swapped_out_blocks);
  use.set_swapped_in_blocks(kv.swapped_in_blocks);
  use.set_demoted_blocks(kv.demoted_blocks);
  use.set_restored_blocks(kv.restored_blocks);
  use.set_host_raw_bytes(kv.host_raw_bytes);
  use.set_host_stored_bytes(kv.host_stored_bytes);
  use.set_host_unfit_blocks(kv.host_unfit_blocks);
  use.set_swapped(stats.scheduler.swapped);
  return use;
}

std::vector<OutputSoFar> ToSoFar(
    const google::protobuf::RepeatedPtrField<v1::OutputSoFar>& choices) {
  std::vector<OutputSoFar> so_far;
  for (const v1::OutputSoFar& choice : choices) {
    so_far.push_back({.token_ids = {choice.token_ids().begin(), choice.token_ids().end()},
                      .cumulative_logprob = choice.cumulative_logprob(),
                      .ended = choice.ended()});
  }
  return so_far;
}

}  // namespace

EngineRequest ToEngineRequest(const v1::SequenceRequest& sequence, TimePoint deadline) {
  return {.id = RequestId(sequence.request_id()),
          .client_id = sequence.client_request_id(),
          .prompt = {sequence.prompt().begin(), sequence.prompt().end()},
          .sampling = ToSamplingParams(sequence.sampling()),
          .constraints = ToConstraints(sequence),
          .prompt_logprobs = sequence.has_prompt_logprobs() ? sequence.prompt_logprobs() : -1,
          .n = sequence.n(),
          .beams = ToBeamParams(sequence),
          .max_tokens = sequence.max_tokens(),
          .stop_token_ids = {sequence.stop_token_ids().begin(), sequence.stop_token_ids().end()},
          .priority = sequence.priority(),
          .deadline = deadline,
          .tenant = sequence.tenant(),
          .cache_salt = sequence.cache_salt(),
          .quality = ToKvQuality(sequence.kv_quality()),
          .eviction = ToTokenEviction(sequence.kv_eviction()),
          .so_far = {}};
}

EngineRequest ToEngineRequest(const v1::GenerateOnWorkerRequest& request, TimePoint deadline) {
  EngineRequest resolved = ToEngineRequest(request.sequence(), deadline);
  resolved.so_far = ToSoFar(request.so_far());
  return resolved;
}

v1::KvLayout ToProto(const KvLayout& layout) {
  v1::KvLayout out;
  out.set_num_layers(layout.num_layers);
  out.set_num_kv_heads(layout.num_kv_heads);
  out.set_head_dim(layout.head_dim);
  out.set_block_tokens(layout.block_tokens);
  out.set_dtype(std::string(Name(layout.dtype)));
  return out;
}

absl::StatusOr<KvLayout> ToKvLayout(const v1::KvLayout& layout) {
  const std::optional<DType> dtype = DTypeFromName(layout.dtype());
  if (!dtype) {
    return InvalidArgument("KV layout: dtype=\"{}\": must be {}", layout.dtype(), kKvTypeNames);
  }
  const KvLayout read = {.num_layers = layout.num_layers(),
                         .num_kv_heads = layout.num_kv_heads(),
                         .head_dim = layout.head_dim(),
                         .block_tokens = layout.block_tokens(),
                         .dtype = *dtype};
  RETURN_IF_ERROR(read.Validate());
  return read;
}

absl::StatusOr<ReserveRequest> ToReserveRequest(const v1::ReserveRequest& request,
                                                TimePoint deadline) {
  ASSIGN_OR_RETURN(const KvLayout layout, ToKvLayout(request.layout()));
  return ReserveRequest{.id = RequestId(request.request_id()),
                        .prompt = {request.prompt().begin(), request.prompt().end()},
                        .max_tokens = request.max_tokens(),
                        .width = request.width(),
                        .priority = request.priority(),
                        .layout = layout,
                        .model_fingerprint = request.model_fingerprint(),
                        .deadline = deadline,
                        .tenant = request.tenant(),
                        .cache_salt = request.cache_salt(),
                        .quality = ToKvQuality(request.kv_quality()),
                        .eviction = ToTokenEviction(request.kv_eviction()),
                        .when_full = request.at_once() ? WhenFull::kRefuse : WhenFull::kWait};
}

v1::ReserveResponse ToProto(const Reservation& reservation, std::string_view data_address) {
  using std::chrono::duration_cast;
  const auto lease = duration_cast<std::chrono::milliseconds>(reservation.lease);
  const auto queued = duration_cast<std::chrono::microseconds>(reservation.queued);
  v1::ReserveResponse response;
  v1::KvTarget& target = *response.mutable_target();
  target.set_data_address(std::string(data_address));
  target.set_reservation_id(reservation.id.value());
  target.set_epoch(reservation.epoch);
  target.set_cached_tokens(reservation.cached_tokens);
  target.set_stored_tokens(reservation.stored_tokens);
  target.set_lease_ms(lease.count());
  for (const CodecId codec : reservation.reads.codecs) {
    target.add_codecs(std::string(CodecName(codec)));
  }
  for (const uint64_t tables : reservation.reads.tables) target.add_codec_tables(tables);
  response.set_queued_us(queued.count());
  return response;
}

DecodeRequest ToDecodeRequest(const v1::DecodeRequest& request, TimePoint deadline) {
  DecodeRequest decode{.request = ToEngineRequest(request.sequence(), deadline),
                       .reservation = ReservationId(request.reservation_id()),
                       .first_tokens = {}};
  for (const v1::TokenLogprobs& first : request.first_tokens()) {
    decode.first_tokens.push_back(ToSampledToken(first));
  }
  decode.request.so_far = ToSoFar(request.so_far());
  return decode;
}

absl::StatusOr<HandoffTarget> ToHandoffTarget(const v1::PrefillRequest& request) {
  const v1::KvTarget& target = request.target();
  const int32_t prompt_tokens = request.sequence().prompt_size();
  if (target.cached_tokens() < 0 || target.cached_tokens() > prompt_tokens) {
    return FailedPrecondition("KV target: cached_tokens={}: must be from 0 to the prompt's {}",
                              target.cached_tokens(), prompt_tokens);
  }
  const std::chrono::milliseconds longest = kLongestLease;
  if (target.lease_ms() < 0 || target.lease_ms() > longest.count()) {
    return FailedPrecondition("KV target: lease_ms={}: must be from 0 to {}", target.lease_ms(),
                              longest.count());
  }
  if (const auto endpoints = ParseEndpoints(target.data_address()); !endpoints.ok()) {
    return FailedPrecondition("KV target: data_address: {}",
                              std::string(endpoints.status().message()));
  }
  return HandoffTarget{.data_address = target.data_address(),
                       .reservation = ReservationId(target.reservation_id()),
                       .epoch = target.epoch(),
                       .cached_tokens = target.cached_tokens(),
                       .stored_tokens = target.stored_tokens(),
                       .lease = std::chrono::milliseconds(target.lease_ms()),
                       .reads = ToReadableKv(target)};
}

v1::TokenLogprobs ToTokenLogprobs(const SampledToken& token) {
  v1::TokenLogprobs logprobs;
  *logprobs.mutable_sampled() = ToLogprob(token.token_id, token.logprob);
  for (const TokenLogprob& top : token.top) {
    *logprobs.add_top() = ToLogprob(top.token_id, top.logprob);
  }
  return logprobs;
}

v1::WorkerTokens ToWorkerTokens(std::span<const SampledToken> tokens, LogprobsWanted logprobs) {
  v1::WorkerTokens out;
  for (const SampledToken& token : tokens) {
    out.add_token_ids(token.token_id);
    if (logprobs == LogprobsWanted::kYes) *out.add_logprobs() = ToTokenLogprobs(token);
  }
  return out;
}

v1::PromptLogprobs ToPromptLogprobs(int32_t first, std::span<const SampledToken> tokens) {
  v1::PromptLogprobs logprobs;
  logprobs.set_first(first);
  for (const SampledToken& token : tokens) *logprobs.add_tokens() = ToTokenLogprobs(token);
  return logprobs;
}

v1::StageTimes ToProto(const StageTimes& stages) {
  v1::StageTimes times;
  times.set_queue_us(Micros(stages.queue));
  times.set_prefill_us(Micros(stages.prefill));
  times.set_transfer_us(Micros(stages.transfer));
  times.set_first_token_us(Micros(stages.first_token));
  times.set_wait_kv_us(Micros(stages.wait_kv));
  return times;
}

v1::WorkerChoiceFinish ToProto(const ChoiceEnd& end) {
  v1::WorkerChoiceFinish finish;
  finish.set_index(end.index);
  finish.set_reason(ToReason(end.reason));
  finish.set_cumulative_logprob(end.cumulative_logprob);
  finish.set_score(end.score);
  return finish;
}

v1::KvLayerBytes ToProto(const KvLayerParts& layer) {
  v1::KvLayerBytes bytes;
  bytes.set_k_kv_bytes(layer.k.kv_bytes);
  bytes.set_k_wire_bytes(layer.k.wire_bytes);
  bytes.set_v_kv_bytes(layer.v.kv_bytes);
  bytes.set_v_wire_bytes(layer.v.wire_bytes);
  bytes.set_k_escapes(layer.k.escapes);
  bytes.set_v_escapes(layer.v.escapes);
  bytes.set_blocks(layer.blocks);
  bytes.set_raw_blocks(layer.raw_blocks);
  return bytes;
}

v1::WorkerFinish ToProto(const FinishInfo& info) {
  v1::WorkerFinish finish;
  finish.set_reason(ToReason(info.reason));
  *finish.mutable_stages() = ToProto(info.stages);
  finish.mutable_kv()->set_raw_bytes(info.kv.raw_bytes);
  finish.mutable_kv()->set_wire_bytes(info.kv.wire_bytes);
  if (info.kv.wire_bytes > 0) finish.mutable_kv()->set_codec(info.kv.codec);
  finish.mutable_kv()->set_expected_us(Micros(info.kv.expected));
  finish.mutable_kv()->set_duration_us(Micros(info.kv.duration));
  finish.mutable_kv()->set_exposed_us(Micros(info.kv.exposed));
  finish.mutable_kv()->set_hidden_bytes(info.kv.hidden_bytes);
  for (const KvLayerParts& layer : info.kv.parts) {
    *finish.mutable_kv()->add_layers() = ToProto(layer);
  }
  finish.set_cached_tokens(info.cached_tokens);
  finish.set_preemptions(info.preemptions);
  finish.set_evicted_tokens(info.evicted_tokens);
  return finish;
}

v1::CostModel::Source ToProto(CostSource source) {
  switch (source) {
    case CostSource::kNone:
      return v1::CostModel::SOURCE_UNSPECIFIED;
    case CostSource::kFile:
      return v1::CostModel::SOURCE_FILE;
    case CostSource::kMeasured:
      return v1::CostModel::SOURCE_MEASURED;
    case CostSource::kLearned:
      return v1::CostModel::SOURCE_LEARNED;
  }
  return v1::CostModel::SOURCE_UNSPECIFIED;
}

v1::WorkerLoad ToLoad(const EngineStats& stats) {
  v1::WorkerLoad load;
  load.set_running(stats.scheduler.running + stats.scheduler.parked);
  load.set_waiting(stats.scheduler.waiting + stats.scheduler.prefilling + stats.scheduler.swapped);
  load.set_total_blocks(stats.kv.total_blocks);
  load.set_free_blocks(stats.kv.free_blocks);
  load.set_requests_finished(stats.requests_finished);
  load.set_prompt_tokens(stats.prompt_tokens);
  load.set_output_tokens(stats.output_tokens);
  load.set_evictions(stats.evictions);
  load.set_evicted_tokens(stats.evicted_tokens);
  load.set_kv_bytes_sent(stats.kv_bytes_sent);
  load.set_kv_bytes_received(stats.kv_bytes_received);
  load.set_waiting_prompt_tokens(stats.scheduler.waiting_prompt_tokens);
  *load.mutable_kv() = ToKvUse(stats);
  *load.mutable_handoffs() = ToHandoffUse(stats);
  load.set_starting(stats.starting);
  load.set_decode_context_tokens(stats.scheduler.decode_context_tokens);
  load.set_expected_decode_tokens(stats.scheduler.expected_decode_tokens);
  const CostState& costs = stats.costs;
  if (costs.model == nullptr) return load;
  v1::CostModel& cost = *load.mutable_cost();
  cost = ToReport(costs.model->coefficients());
  cost.set_source(ToProto(costs.source));
  cost.set_revision(costs.revision);
  cost.set_error(costs.error);
  cost.set_drift(costs.drift);
  cost.set_steps(costs.steps);
  return load;
}

v1::WorkerRole ToProto(Role role) {
  switch (role) {
    case Role::kUnified:
      return v1::WORKER_ROLE_UNIFIED;
    case Role::kPrefill:
      return v1::WORKER_ROLE_PREFILL;
    case Role::kDecode:
      return v1::WORKER_ROLE_DECODE;
  }
  return v1::WORKER_ROLE_UNSPECIFIED;
}

v1::CacheChanges ToProto(const PrefixChanges& changes) {
  v1::CacheChanges message;
  message.set_since(changes.since);
  message.set_sequence(changes.sequence);
  message.mutable_added()->Add(changes.added.begin(), changes.added.end());
  message.mutable_removed()->Add(changes.removed.begin(), changes.removed.end());
  message.set_more(changes.more);
  return message;
}

}  // namespace tandem
