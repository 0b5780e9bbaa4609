#include "server/assembly/router_options.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "base/log.h"
#include "base/status.h"
#include "router/prefix/prefix_index.h"
#include "server/assembly/classic_parameters.h"
#include "server/assembly/model_name.h"
#include "server/assembly/simulated_worker.h"

namespace tandem {
namespace {

uint64_t RandomSeed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

Slo SloOf(const RouterTuning& tuning) {
  Slo slo;
  if (tuning.ttft_slo_ms) slo.ttft = ModelTime(*tuning.ttft_slo_ms);
  if (tuning.tpot_slo_ms) slo.tpot = ModelTime(*tuning.tpot_slo_ms);
  return slo;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerIfAny(const std::string& directory) {
  if (directory.empty()) return nullptr;
  auto tokenizer = LoadTokenizer(directory);
  if (absl::IsNotFound(tokenizer.status())) {
    LogWarn("{}: prompts must be token ids", std::string(tokenizer.status().message()));
    return std::unique_ptr<Tokenizer>();
  }
  return tokenizer;
}

}  // namespace

absl::StatusOr<ServedModel> LoadServedModel(const RouterProcessOptions& options) {
  ServedModel served;
  if (!options.simulated.empty()) {
    ASSIGN_OR_RETURN(const SimulatedDevice device,
                     LoadSimulatedDevice(options.simulated, options.model_dir));
    ASSIGN_OR_RETURN(served.name, SimulatedModelName(device, options.model_name));
    served.config = StandInFor(device);
  } else {
    if (options.model_dir.empty()) {
      return InvalidArgument("--model is missing: give a directory with config.json");
    }
    served.name = options.model_name.empty() ? ModelNameFor(options.model_dir) : options.model_name;
    ASSIGN_OR_RETURN(served.config, LoadModelConfig(options.model_dir));
  }
  ASSIGN_OR_RETURN(served.tokenizer, LoadTokenizerIfAny(options.model_dir));
  return served;
}

absl::Status CheckLease(const RouterTuning& tuning) {
  // A worker must not count as gone when only one of its reports is late.
  constexpr int kLeastReportsPerLease = 2;
  if (tuning.lease_ms / kLeastReportsPerLease >= tuning.heartbeat_ms) return absl::OkStatus();
  return InvalidArgument(
      "--lease-ms {}: workers report every --heartbeat-ms {}, and would be taken for gone: give at "
      "least {} times that",
      tuning.lease_ms, tuning.heartbeat_ms, kLeastReportsPerLease);
}

RouterOptions RouterOptionsFor(const RouterProcessOptions& options, const ServedModel& served) {
  const RouterTuning& tuning = options.tuning;
  const Tokenizer* const tokenizer = served.tokenizer.get();
  RouterOptions made;
  made.limits.model = served.name;
  made.limits.vocab_size = served.config.vocab_size;
  made.limits.max_context_tokens = served.config.max_position_embeddings;
  made.limits.eos_token_ids = served.config.eos_token_ids;
  made.limits.has_tokenizer = tokenizer != nullptr;
  if (tokenizer != nullptr) made.limits.max_bytes_per_token = tokenizer->MaxBytesPerToken();
  made.limits.max_choices = tuning.max_choices;
  made.limits.default_slo = SloOf(tuning);
  made.limits.default_kv.quality = KvQualityFromName(tuning.quality).value_or(KvQuality::kExact);
  if (tuning.evict != "none") {
    const absl::StatusOr<TokenEviction> eviction = ParseTokenEviction(tuning.evict);
    if (eviction.ok()) made.limits.default_kv.eviction = *eviction;  // the flag was checked before
  }
  made.max_request_time = std::chrono::seconds(tuning.max_request_seconds);
  made.tokenizing.threads = tuning.tokenize_threads;
  made.tokenizing.max_long_text_bytes = tuning.tokenize_queue_bytes;
  made.random_seed = RandomSeed();
  made.version = options.build;
  return made;
}

ClusterOptions ClusterOptionsFor(const RouterTuning& tuning, const std::string& model) {
  return {.model = model,
          .lease = std::chrono::milliseconds(tuning.lease_ms),
          .heartbeat = std::chrono::milliseconds(tuning.heartbeat_ms),
          .max_workers = tuning.max_workers};
}

absl::StatusOr<PolicyOptions> PolicyOptionsFor(const RouterTuning& tuning) {
  PolicyOptions options = tuning.policy_options;
  if (tuning.classic_parameters.empty()) return options;
  ASSIGN_OR_RETURN(options.classic, LoadClassicParameters(tuning.classic_parameters));
  return options;
}

uint32_t MostCacheChanges(const RouterTuning& tuning) {
  // The changes of one heartbeat take at most half of the bytes that a message may have.
  constexpr uint64_t kBytesPerChange = 8;
  return static_cast<uint32_t>(std::min<uint64_t>(PrefixIndex::kMostChanges,
                                                  tuning.max_message_bytes / 2 / kBytesPerChange));
}

}  // namespace tandem
