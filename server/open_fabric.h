#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "server/assemble.h"
#include "transfer/fabric.h"

namespace tandem {

// The transports of a worker that hands KV over, as its flags say. `receiver` and `clock` outlive
// the fabric. Errors name the address or the flag at fault.
absl::StatusOr<std::unique_ptr<Fabric>> OpenFabric(const WorkerOptions& options,
                                                   const EngineOptions& engine,
                                                   FrameReceiver* receiver, const Clock& clock);

}  // namespace tandem
