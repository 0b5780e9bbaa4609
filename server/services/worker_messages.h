#pragma once

#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/output_stream.h"
#include "kvstore/prefix_journal.h"
#include "tandem/v1/cluster.pb.h"
#include "tandem/v1/kv_transfer.pb.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// Conversions between the engine's types and the protobuf messages of a worker's calls.
EngineRequest ToEngineRequest(const v1::SequenceRequest& sequence, TimePoint deadline);
EngineRequest ToEngineRequest(const v1::GenerateOnWorkerRequest& request, TimePoint deadline);
// INVALID_ARGUMENT for a layout with impossible values.
absl::StatusOr<KvLayout> ToKvLayout(const v1::KvLayout& layout);
absl::StatusOr<ReserveRequest> ToReserveRequest(const v1::ReserveRequest& request,
                                                TimePoint deadline);
DecodeRequest ToDecodeRequest(const v1::DecodeRequest& request, TimePoint deadline);
// INVALID_ARGUMENT for more cached tokens than the prompt has, or for an impossible lease.
absl::StatusOr<HandoffTarget> ToHandoffTarget(const v1::PrefillRequest& request);

enum class LogprobsWanted : uint8_t { kNo, kYes };
v1::WorkerTokens ToWorkerTokens(std::span<const SampledToken> tokens, LogprobsWanted logprobs);
v1::TokenLogprobs ToTokenLogprobs(const SampledToken& token);
v1::PromptLogprobs ToPromptLogprobs(int32_t first, std::span<const SampledToken> tokens);
v1::KvLayout ToProto(const KvLayout& layout);
v1::CostModel::Source ToProto(CostSource source);
v1::ReserveResponse ToProto(const Reservation& reservation, std::string_view data_address);
v1::StageTimes ToProto(const StageTimes& stages);
v1::WorkerChoiceFinish ToProto(const ChoiceEnd& end);
v1::KvLayerBytes ToProto(const KvLayerParts& layer);
// info.status must be OK.
v1::WorkerFinish ToProto(const FinishInfo& info);
v1::WorkerLoad ToLoad(const EngineStats& stats);
v1::WorkerRole ToProto(Role role);
v1::CacheChanges ToProto(const PrefixChanges& changes);

}  // namespace tandem
