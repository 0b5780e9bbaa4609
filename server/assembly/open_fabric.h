#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "server/admin/watchdog.h"
#include "server/assembly/worker_options.h"
#include "transfer/fabric/fabric.h"

namespace tandem {

// A transport that --kv-transport=auto would have had, and why it could not.
struct LeftOut {
  std::string transport;
  std::string reason;
};

// Logs it, and adds it to `all`.
void LeaveOut(const std::string& transport, const absl::Status& why, std::vector<LeftOut>& all);

// Whether a worker with these flags, of a role that hands KV over, offers `transport` (one of
// kTransports), as far as can be told before it opens it: the system may still lack the memory or the
// library. NOT_FOUND where --kv-transport leaves it out; else FAILED_PRECONDITION or INVALID_ARGUMENT
// says why not. `engine`: as the engine is to be made, or was.
absl::Status MayOffer(std::string_view transport, const WorkerOptions& options,
                      const EngineOptions& engine, const Device& device);

// Whether the KV pool of a worker with these flags is read by others where it lies
// (EngineOptions::share_kv). FAILED_PRECONDITION where the flags ask for it and the device cannot.
absl::StatusOr<bool> SharesKv(const WorkerOptions& options, const Device& device);

// Whether a worker with these flags, where SharesKv, starts without when the system has no memory
// to share: they name no transport that needs it.
bool MayKeepKvPrivate(const WorkerOptions& options);

// What OpenFabric takes at the most of the memory of `device`, where KV lies: nothing where that is
// the host's. `engine` as the engine is to be made, or was.
int64_t FabricDeviceBytes(const WorkerOptions& options, const EngineOptions& engine,
                          const Device& device);

// What OpenFabric takes at the least of the host's memory: what flags ask for.
int64_t FabricSharedBytes(const WorkerOptions& options);

// The frames that a hand-off has at the most: those of a prompt as long as the context of `engine`,
// but no fewer than probes have.
int64_t MostFramesOf(const EngineOptions& engine);

// The transports of a worker that hands KV over, as its flags say. `engine`, `device`, where its KV
// lies, and `clock` outlive the fabric, and so do `turns`, which gets one for the thread of each
// transport. `left_out` gets what is missing. Errors name the address or the flag at fault.
absl::StatusOr<std::unique_ptr<Fabric>> OpenFabric(const WorkerOptions& options, Engine& engine,
                                                   Device& device, const Clock& clock,
                                                   std::deque<TurnCounter>& turns,
                                                   std::vector<LeftOut>& left_out);

}  // namespace tandem
