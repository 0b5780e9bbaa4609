#pragma once

#include <deque>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "server/assemble.h"
#include "server/watchdog.h"
#include "transfer/fabric.h"

namespace tandem {

// The transports of a worker that hands KV over, as its flags say. `device`, where the KV lies,
// `receiver` and `clock` outlive the fabric, and so do `turns`, which gets one for the thread of
// each transport. Errors name the address or the flag at fault.
absl::StatusOr<std::unique_ptr<Fabric>> OpenFabric(const WorkerOptions& options,
                                                   const EngineOptions& engine, Device& device,
                                                   FrameReceiver* receiver, const Clock& clock,
                                                   std::deque<TurnCounter>& turns);

}  // namespace tandem
