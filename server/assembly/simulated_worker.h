#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/simulated/simulated_device.h"
#include "engine/simulated/simulated_steps.h"
#include "model/checkpoint/model_config.h"
#include "server/assembly/worker_options.h"

namespace tandem {

// The file that `--device simulated:FILE` names; nothing for any other device.
std::optional<std::string> SimulatedFile(std::string_view device);

// The name that the model of a simulated device is served under: `wanted`, or if that is empty the
// device's own. INVALID_ARGUMENT when `wanted` does not say that it is simulated.
absl::StatusOr<std::string> SimulatedModelName(const SimulatedDevice& device,
                                               const std::string& wanted);

// The model shape that an engine on a simulated device uses: the vocabulary and the context of the
// simulated model, but much smaller KV, which is stored and moved in place of the real one, so that
// many workers fit into one machine, and few layers, so that a hand-off has few frames.
ModelConfig StandInFor(const SimulatedDevice& device);

// The bytes of stand-in KV that are stored and moved for each byte of the simulated model's KV.
double StoredBytesPerByte(const SimulatedDevice& device);

// Adapts a worker's options to the simulated device: the size of the KV pool, of steps, and the
// rate of the link to other workers, all in terms of the stand-in. INVALID_ARGUMENT names a flag
// that a simulated device does not have.
absl::StatusOr<WorkerOptions> OnSimulatedDevice(const SimulatedDevice& device,
                                                const WorkerOptions& options);

// The simulated steps of `device`, each taking `slowdown` times as long.
absl::StatusOr<SimulatedStepsOptions> StepsOf(const SimulatedDevice& device, double slowdown);

}  // namespace tandem
