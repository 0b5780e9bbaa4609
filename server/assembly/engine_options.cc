#include "server/assembly/engine_options.h"

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/status.h"
#include "kvstore/kv_store.h"
#include "server/assembly/kv_sensitivity.h"
#include "server/assembly/open_fabric.h"

namespace tandem {
namespace {

constexpr int64_t kDefaultContexts = 16;
constexpr int64_t kDefaultMaxKvBytes = int64_t{1} << 30;

// The default size of the largest step: large enough to keep the device busy.
struct StepSize {
  int32_t tokens;
  int32_t sequences;
};
constexpr StepSize kStepOnCpu = {.tokens = 512, .sequences = 64};
constexpr StepSize kStepOnGpu = {.tokens = 2048, .sequences = 256};

absl::StatusOr<DType> KvDType(const std::string& name, DType weights) {
  if (name == "auto") return weights;
  const std::optional<DType> dtype = DTypeFromName(name);
  if (dtype && IsKvType(*dtype)) return *dtype;
  return InvalidArgument("--kv-dtype {} is unknown; use auto, {}", name, kKvTypeNames);
}

// One word that a flag accepts, and the value that it stands for.
template <typename Value>
struct Word {
  std::string_view word;
  Value value;
};

template <typename Value>
absl::StatusOr<Value> Parse(std::string_view flag, const std::string& given,
                            std::initializer_list<Word<Value>> words) {
  std::string known;
  for (const Word<Value>& word : words) {
    if (word.word == given) return word.value;
    known += fmt::format("{}{}", known.empty() ? "" : " or ", word.word);
  }
  return InvalidArgument("{} {} is unknown; use {}", flag, given, known);
}

absl::StatusOr<CodecId> ParseCodec(std::string_view flag, const std::string& given) {
  return Parse<CodecId>(flag, given,
                        {{CodecName(CodecId::kRaw), CodecId::kRaw},
                         {CodecName(CodecId::kF3), CodecId::kF3},
                         {CodecName(CodecId::kMaskRice), CodecId::kMaskRice}});
}

absl::Status SetKvOptions(const WorkerTuning& tuning, EngineOptions& engine) {
  ASSIGN_OR_RETURN(
      engine.prefix_caching,
      Parse<PrefixCaching>("--prefix-cache", tuning.prefix_cache,
                           {{"on", PrefixCaching::kOn}, {"off", PrefixCaching::kOff}}));
  ASSIGN_OR_RETURN(
      engine.eviction,
      Parse<EvictionKind>("--eviction", tuning.eviction,
                          {{"lru", EvictionKind::kLru}, {"cost-aware", EvictionKind::kCostAware}}));
  engine.host_bytes = static_cast<int64_t>(tuning.host_kv_bytes);
  ASSIGN_OR_RETURN(engine.host_codec, ParseCodec("--host-kv-codec", tuning.host_kv_codec));
  return absl::OkStatus();
}

absl::Status SetCodecOptions(const TransferTuning& tuning, EngineOptions& engine) {
  engine.codec_threads = tuning.codec_threads;
  engine.kv_dump_directory = tuning.dump_directory;
  engine.kv_dump_bytes = tuning.dump_bytes;
  engine.probes_codecs = tuning.codec == "probe";
  if (tuning.codec == "auto" || engine.probes_codecs) return absl::OkStatus();
  ASSIGN_OR_RETURN(engine.wire_codec, ParseCodec("--kv-codec", tuning.codec));
  return absl::OkStatus();
}

void SetReservationOptions(const TransferTuning& tuning, EngineOptions& engine) {
  engine.reservation_lease = std::chrono::milliseconds(tuning.lease_ms);
  engine.max_waiting_reservations = tuning.max_waiting_reservations;
  engine.least_post_bytes = tuning.least_post_bytes;
  engine.max_reservation_wait = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(tuning.max_reservation_wait_seconds));
}

absl::Status SetScheduler(const WorkerTuning& tuning, const Device& device,
                          SchedulerOptions& scheduler) {
  const StepSize step = device.is_host() ? kStepOnCpu : kStepOnGpu;
  scheduler.max_step_tokens = tuning.max_step_tokens != 0 ? tuning.max_step_tokens : step.tokens;
  scheduler.max_prefill_chunk = tuning.max_prefill_chunk;
  scheduler.max_sequences = tuning.max_sequences != 0 ? tuning.max_sequences : step.sequences;
  scheduler.max_waiting = tuning.max_waiting;
  ASSIGN_OR_RETURN(scheduler.policy,
                   Parse<SchedulingPolicyKind>("--schedule", tuning.schedule,
                                               {{"fair", SchedulingPolicyKind::kFair},
                                                {"deadline", SchedulingPolicyKind::kDeadline}}));
  scheduler.max_wait =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(tuning.max_wait_seconds));
  return absl::OkStatus();
}

absl::StatusOr<int32_t> NumBlocks(const WorkerTuning& tuning, const KvLayout& layout,
                                  int32_t max_context) {
  int64_t tokens = tuning.kv_tokens;
  if (tokens == 0 && tuning.kv_bytes > 0) {
    tokens = static_cast<int64_t>(tuning.kv_bytes) / layout.BytesPerToken();
  } else if (tokens == 0) {
    tokens = std::min(kDefaultContexts * max_context, kDefaultMaxKvBytes / layout.BytesPerToken());
  }
  const int64_t blocks = tokens / layout.block_tokens;
  constexpr int64_t kMaxBlocks = 1 << 30;
  if (blocks >= 1 && blocks <= kMaxBlocks) return static_cast<int32_t>(blocks);
  return InvalidArgument(
      "a KV pool of {} tokens makes {} blocks of {}; it needs 1 to {}: change "
      "--kv-tokens or --kv-bytes",
      tokens, blocks, layout.block_tokens, kMaxBlocks);
}

// Sets the size of the KV pool, and lowers the longest context to what fits into it. Where the
// engine is to size the pool by the memory of the device, it does both itself.
absl::Status SetPoolSize(const WorkerTuning& tuning, const Device& device, EngineOptions& engine) {
  if (tuning.kv_tokens == 0 && tuning.kv_bytes == 0 && !device.is_host()) return absl::OkStatus();
  ASSIGN_OR_RETURN(engine.num_blocks, NumBlocks(tuning, engine.layout, engine.max_context_tokens));
  engine.max_context_tokens = static_cast<int32_t>(std::min<int64_t>(
      engine.max_context_tokens, int64_t{engine.num_blocks} * engine.layout.block_tokens));
  return absl::OkStatus();
}

// How often an idle worker runs a canary step: three times within the time in which a step must
// have ended, so that a late one is not missed.
absl::StatusOr<Duration> CanaryInterval(const WorkerTuning& tuning) {
  constexpr double kLeast = 1;  // seconds; a watchdog looks four times a second
  const double seconds = tuning.progress_seconds;
  if (seconds != 0 && seconds < kLeast) {
    return InvalidArgument("--progress-seconds {}: give at least {}, or off", seconds, kLeast);
  }
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds / 3));
}

}  // namespace

absl::StatusOr<EngineOptions> EngineOptionsFor(const WorkerOptions& options,
                                               const ModelConfig& config,
                                               uint64_t model_fingerprint, const Device& device) {
  const WorkerTuning& tuning = options.tuning;
  EngineOptions engine;
  engine.role = options.role;
  ASSIGN_OR_RETURN(const DType kv_dtype, KvDType(tuning.kv_dtype, config.dtype));
  engine.layout = {.num_layers = config.num_layers,
                   .num_kv_heads = config.num_kv_heads,
                   .head_dim = config.head_dim,
                   .block_tokens = tuning.block_tokens,
                   .dtype = kv_dtype};
  RETURN_IF_ERROR(engine.layout.Validate());
  RETURN_IF_ERROR(CheckKvType(engine.layout, device));
  const int32_t model_context = config.max_position_embeddings;
  if (tuning.max_context > model_context) {
    return InvalidArgument("--max-context {} exceeds the model's {}", tuning.max_context,
                           model_context);
  }
  engine.max_context_tokens = tuning.max_context > 0 ? tuning.max_context : model_context;
  engine.device_memory_fraction =
      tuning.device_memory_fraction.value_or(kDefaultDeviceMemoryFraction);
  RETURN_IF_ERROR(SetPoolSize(tuning, device, engine));
  engine.splits = tuning.batch_invariant ? SplitMode::kFixed : SplitMode::kBalanced;
  RETURN_IF_ERROR(SetKvOptions(tuning, engine));
  RETURN_IF_ERROR(SetScheduler(tuning, device, engine.scheduler));
  engine.model_fingerprint = model_fingerprint;
  engine.epoch = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch() /
                                       std::chrono::nanoseconds(1));
  ASSIGN_OR_RETURN(engine.share_kv, SharesKv(options, device));
  engine.check_invariants = tuning.check_invariants;
  ASSIGN_OR_RETURN(engine.canary_interval, CanaryInterval(tuning));
  SetReservationOptions(tuning.transfer, engine);
  RETURN_IF_ERROR(SetCodecOptions(tuning.transfer, engine));
  ASSIGN_OR_RETURN(engine.kv_sensitivity,
                   KvSensitivityFor(options, model_fingerprint, config.num_layers));
  return engine;
}

}  // namespace tandem
