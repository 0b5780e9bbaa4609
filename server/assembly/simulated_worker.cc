#include "server/assembly/simulated_worker.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>

#include "base/log.h"
#include "base/simulated_model.h"
#include "base/status.h"

namespace tandem {
namespace {

constexpr std::string_view kDevicePrefix = "simulated:";

// The default of a GPU, where neither the file nor a flag gives another value.
constexpr int32_t kDefaultStepTokens = 2048;
constexpr int32_t kDefaultSequences = 256;

absl::Status CheckFlags(const WorkerTuning& tuning) {
  if (tuning.kv_dtype != "auto") {
    return InvalidArgument(
        "--kv-dtype {}: the parameter file of a simulated device says how KV is kept",
        tuning.kv_dtype);
  }
  if (tuning.weights != "stored") {
    return InvalidArgument("--weights {}: a simulated device has no weights", tuning.weights);
  }
  if (tuning.host_kv_bytes > 0) {
    return InvalidArgument(
        "--host-kv-bytes {}: a simulated device has no memory of the host for KV",
        tuning.host_kv_bytes);
  }
  return absl::OkStatus();
}

void SetPoolSize(const SimulatedDevice& device, WorkerTuning& tuning) {
  if (tuning.kv_tokens == 0 && tuning.kv_bytes > 0) {
    tuning.kv_tokens = static_cast<int64_t>(tuning.kv_bytes) / device.BytesPerToken();
  } else if (tuning.kv_tokens == 0) {
    tuning.kv_tokens = device.kv_tokens;
  }
  tuning.kv_bytes = 0;
}

// Sets the rate of the links: that of the first link in the file, or --kv-bandwidth, in bytes of
// stored KV. Layers that a real prefill worker posts together are posted together here.
void ScaleTransfers(const SimulatedDevice& device, TransferTuning& tuning) {
  const double scale = StoredBytesPerByte(device);
  double rate = static_cast<double>(tuning.bandwidth);
  if (rate == 0 && !device.parameters.links.empty()) {
    rate = device.parameters.links.front().model.bytes_per_second;
  }
  if (rate > 0) tuning.bandwidth = static_cast<uint64_t>(std::max(1.0, std::round(rate * scale)));
  tuning.bandwidth_burst = std::chrono::milliseconds(2);
  const double least_post = static_cast<double>(tuning.least_post_bytes) * scale;
  tuning.least_post_bytes = std::max<int64_t>(1, std::llround(least_post));
  // Every transport has a thread and memory of its own, and one transport is enough for links of a
  // limited rate.
  if (tuning.transport == "auto") tuning.transport = "tcp";
}

}  // namespace

std::optional<std::string> SimulatedFile(std::string_view device) {
  if (!device.starts_with(kDevicePrefix)) return std::nullopt;
  return std::string(device.substr(kDevicePrefix.size()));
}

absl::StatusOr<std::string> SimulatedModelName(const SimulatedDevice& device,
                                               const std::string& wanted) {
  if (wanted.empty()) return std::string(kSimulatedModelPrefix) + device.name;
  if (IsSimulatedModel(wanted)) return wanted;
  return InvalidArgument(
      "--model-name {}: what a simulated device serves has a name that begins with {}, so that "
      "nobody "
      "takes its tokens for answers",
      wanted, kSimulatedModelPrefix);
}

ModelConfig StandInFor(const SimulatedDevice& device) {
  return {.model_type = "simulated",
          .num_layers = 4,
          .num_heads = 1,
          .num_kv_heads = 1,
          .head_dim = 8,
          .vocab_size = device.vocab_size,
          .max_position_embeddings = device.max_context_tokens,
          .dtype = DType::kF8E4M3,
          .eos_token_ids = device.eos_token_ids};
}

double StoredBytesPerByte(const SimulatedDevice& device) {
  const ModelConfig config = StandInFor(device);
  const KvLayout stored = {.num_layers = config.num_layers,
                           .num_kv_heads = config.num_kv_heads,
                           .head_dim = config.head_dim,
                           .dtype = config.dtype};
  return static_cast<double>(stored.BytesPerToken()) / static_cast<double>(device.BytesPerToken());
}

absl::StatusOr<WorkerOptions> OnSimulatedDevice(const SimulatedDevice& device,
                                                const WorkerOptions& options) {
  WorkerOptions adapted = options;
  WorkerTuning& tuning = adapted.tuning;
  RETURN_IF_ERROR(CheckFlags(tuning));
  SetPoolSize(device, tuning);
  const auto choose = [](int32_t& value, int32_t of_file, int32_t otherwise) {
    if (value == 0) value = of_file > 0 ? of_file : otherwise;
  };
  choose(tuning.max_step_tokens, device.max_step_tokens, kDefaultStepTokens);
  choose(tuning.max_sequences, device.max_sequences, kDefaultSequences);
  tuning.threads = 1;  // a simulated device computes nothing
  ScaleTransfers(device, tuning.transfer);
  LogInfo("simulated device={} stored_bytes_per_token={:.0f} of={} kv_bandwidth={}", device.name,
          StoredBytesPerByte(device) * static_cast<double>(device.BytesPerToken()),
          device.BytesPerToken(), tuning.transfer.bandwidth);
  return adapted;
}

absl::StatusOr<SimulatedStepsOptions> StepsOf(const SimulatedDevice& device, double slowdown) {
  ASSIGN_OR_RETURN(StepModel steps, StepModel::Create(device.parameters.steps));
  return SimulatedStepsOptions{.steps = std::move(steps),
                               .slowdown = slowdown,
                               .lengths = device.lengths,
                               .eos_token_ids = device.eos_token_ids};
}

}  // namespace tandem
