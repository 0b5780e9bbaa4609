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

// What an engine on a simulated device computes instead of the model: its vocabulary and context, and
// a shape of KV that is kept and moved in its place. That is so small that many workers fit into one
// machine, and has few layers, so that a hand-off has few frames.
ModelConfig StandInFor(const SimulatedDevice& device);

// How many bytes are kept and moved for each byte of KV of the simulated model.
double StoredBytesPerByte(const SimulatedDevice& device);

// A worker's options with what follows from the device: the size of the KV pool, of steps, and the
// rate of the link to other workers, all in terms of the stand-in. INVALID_ARGUMENT names a flag that
// a simulated device does not have.
absl::StatusOr<WorkerOptions> OnSimulatedDevice(const SimulatedDevice& device,
                                                const WorkerOptions& options);

// The steps of `device`, `slowdown` times as long.
absl::StatusOr<SimulatedStepsOptions> StepsOf(const SimulatedDevice& device, double slowdown);

}  // namespace tandem
