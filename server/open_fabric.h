#pragma once

#include <deque>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "server/assemble.h"
#include "server/watchdog.h"
#include "transfer/fabric.h"

namespace tandem {

// Whether the KV pool of a worker with these flags is read by others where it lies
// (EngineOptions::share_kv). FAILED_PRECONDITION where the flags ask for it and the device cannot.
absl::StatusOr<bool> SharesKv(const WorkerOptions& options, const Device& device);

// The transports of a worker that hands KV over, as its flags say. `engine`, `device`, where its KV
// lies, and `clock` outlive the fabric, and so do `turns`, which gets one for the thread of each
// transport. Errors name the address or the flag at fault.
absl::StatusOr<std::unique_ptr<Fabric>> OpenFabric(const WorkerOptions& options, Engine& engine,
                                                   Device& device, const Clock& clock,
                                                   std::deque<TurnCounter>& turns);

}  // namespace tandem
