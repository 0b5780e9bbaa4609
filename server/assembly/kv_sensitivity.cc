#include "server/assembly/kv_sensitivity.h"

#include <string>

#include "base/log.h"
#include "engine/profile/kv_sensitivity_file.h"
#include "server/assembly/simulated_worker.h"

namespace tandem {

absl::StatusOr<KvSensitivity> KvSensitivityFor(const WorkerOptions& options,
                                               uint64_t model_fingerprint, int32_t num_layers) {
  if (options.role != Role::kPrefill || SimulatedFile(options.tuning.device)) {
    return KvSensitivity{};
  }
  const std::string path = options.model_dir + "/" + kKvSensitivityFile;
  absl::StatusOr<KvSensitivity> loaded = LoadKvSensitivity(path, model_fingerprint, num_layers);
  if (absl::IsNotFound(loaded.status())) return KvSensitivity{};
  if (loaded.ok()) LogInfo("kv sensitivity file={} layers={}", path, num_layers);
  return loaded;
}

}  // namespace tandem
