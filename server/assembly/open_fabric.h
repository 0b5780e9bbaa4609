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

// A transport that --kv-transport=auto would have used, and why it is not available.
struct LeftOut {
  std::string transport;
  std::string reason;
};

// Logs that `transport` is not available, and why, and adds it to `all`.
void LeaveOut(const std::string& transport, const absl::Status& why, std::vector<LeftOut>& all);

// Whether a worker with these flags, of a role that hands KV over, offers `transport` (one of
// kTransports), as far as can be known before the transport is opened: the system may still lack
// the memory or the library. NOT_FOUND where --kv-transport leaves it out; else FAILED_PRECONDITION
// or INVALID_ARGUMENT says why not. `engine`: options of the engine, whether it exists already or
// not.
absl::Status MayOffer(std::string_view transport, const WorkerOptions& options,
                      const EngineOptions& engine, const Device& device);

// Whether other processes read the KV of a worker with these flags directly from its pool
// (EngineOptions::share_kv). FAILED_PRECONDITION where the flags ask for it and the device cannot.
absl::StatusOr<bool> SharesKv(const WorkerOptions& options, const Device& device);

// Whether a worker for which SharesKv is true may start with a private KV pool when the system has
// no memory to share: its flags then name no transport that needs shared KV.
bool MayKeepKvPrivate(const WorkerOptions& options);

// The most bytes that OpenFabric takes of the memory of `device`, where KV lies: 0 where that is
// the host's memory. `engine`: options of the engine, whether it exists already or not.
int64_t FabricDeviceBytes(const WorkerOptions& options, const EngineOptions& engine,
                          const Device& device);

// The least bytes that OpenFabric takes of the host's memory: the shared memory that the flags ask
// for.
int64_t FabricSharedBytes(const WorkerOptions& options);

// The most frames of one hand-off: those of a prompt as long as the context of `engine`, but no
// fewer than a probe has.
int64_t MostFramesOf(const EngineOptions& engine);

// Opens the transports of a worker that hands KV over, as its flags say. `engine`, `device`, which
// holds its KV, and `clock` outlive the fabric, and so do `turns`, which gets one element for the
// thread of each transport. `left_out` gets the transports that are not available. Errors name the
// address or the flag at fault.
absl::StatusOr<std::unique_ptr<Fabric>> OpenFabric(const WorkerOptions& options, Engine& engine,
                                                   Device& device, const Clock& clock,
                                                   std::deque<TurnCounter>& turns,
                                                   std::vector<LeftOut>& left_out);

}  // namespace tandem
