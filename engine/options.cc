#include "engine/options.h"

#include "base/status.h"

namespace tandem {
namespace {

// Upper limits of options, which bound the memory that options can ask for.
constexpr int32_t kMaxWaiting = 1 << 16;
constexpr int32_t kMaxConversionSlots = 1024;
constexpr int32_t kMaxCodecThreads = 256;

absl::Status CheckHandoffOptions(const EngineOptions& options) {
  if (options.reservation_lease <= Duration::zero()) {
    return InvalidArgument("reservation_lease is {} ms: it must be more than 0",
                           ToMilliseconds(options.reservation_lease));
  }
  if (options.max_waiting_reservations < 1 || options.max_waiting_reservations > kMaxWaiting) {
    return InvalidArgument("max_waiting_reservations is {}: it must be from 1 to {}",
                           options.max_waiting_reservations, kMaxWaiting);
  }
  if (options.conversion_slots < 1 || options.conversion_slots > kMaxConversionSlots) {
    return InvalidArgument("conversion_slots is {}: it must be from 1 to {}",
                           options.conversion_slots, kMaxConversionSlots);
  }
  if (options.codec_threads < 0 || options.codec_threads > kMaxCodecThreads) {
    return InvalidArgument("codec_threads is {}: it must be from 0 to {}", options.codec_threads,
                           kMaxCodecThreads);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckOptions(const EngineOptions& options, const ModelConfig& model) {
  RETURN_IF_ERROR(options.layout.Validate());
  RETURN_IF_ERROR(options.scheduler.Validate());
  const KvLayout& layout = options.layout;
  if (layout.num_layers != model.num_layers || layout.num_kv_heads != model.num_kv_heads ||
      layout.head_dim != model.head_dim) {
    return InvalidArgument(
        "the KV layout has {} layers of {} KV heads of {}, the model {} of {} of {}",
        layout.num_layers, layout.num_kv_heads, layout.head_dim, model.num_layers,
        model.num_kv_heads, model.head_dim);
  }
  if (options.max_context_tokens < 2 ||
      options.max_context_tokens > model.max_position_embeddings) {
    return InvalidArgument("max_context_tokens is {}: it must be from 2 to the model's {}",
                           options.max_context_tokens, model.max_position_embeddings);
  }
  if (options.inbox_capacity < 1) return InvalidArgument("inbox_capacity must be at least 1");
  return CheckHandoffOptions(options);
}

}  // namespace tandem
