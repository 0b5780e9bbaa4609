#pragma once

#include <span>

#include "engine/engine.h"
#include "engine/output_stream.h"
#include "tandem/v1/cluster.pb.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// Between what the engine speaks and what travels.
EngineRequest ToEngineRequest(const v1::SequenceRequest& sequence, TimePoint deadline);
HandoffTarget ToHandoffTarget(const v1::KvTarget& target);
enum class LogprobsWanted : uint8_t { kNo, kYes };
v1::WorkerEvent ToTokensEvent(std::span<const SampledToken> tokens, const StageTimes& stages,
                              LogprobsWanted logprobs);
// info.status must be OK.
v1::WorkerEvent ToFinishEvent(const FinishInfo& info);
v1::WorkerLoad ToLoad(const EngineStats& stats);
v1::WorkerRole ToProto(Role role);

}  // namespace tandem
