#include "engine/profile/step_session.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace tandem {
absl::StatusOr<std::unique_ptr<StepSession>> StepSession::Open(const Options& options,
                                                               LoadProgress progress) {
  std::unique_ptr<StepSession> session(new StepSession());
  session->options_ = options;
  const ModelSource source = {.model_dir = options.model_dir,
                              .device = options.device,
                              .threads = options.threads,
                              .weights_as = options.weights_as};
  ASSIGN_OR_RETURN(session->model_, PackModel(source, std::move(progress)));
  RETURN_IF_ERROR(session->CreateStore());
  RETURN_IF_ERROR(session->WarmUp());
  ASSIGN_OR_RETURN(
      session->steps_,
      DummySteps::Create(session->limits_, {.store = *session->store_,
                                            .stream = *session->stream_,
                                            .computation = *session->runner_,
                                            .vocab_size = session->model_.config.vocab_size}));
  return session;
}

absl::Status StepSession::SetLimits(const KvLayout& layout) {
  const int32_t model_context = model_.config.max_position_embeddings;
  limits_ = {.max_step_tokens = std::min(options_.max_step_tokens, model_context / 2),
             .max_sequences = options_.max_sequences};
  // One sequence is the prompt, which needs room for its chunk behind its context.
  const int64_t affordable =
      (options_.max_kv_bytes / layout.BytesPerToken() - limits_.max_step_tokens) /
      (limits_.max_sequences + 1);
  const int32_t most = model_context - limits_.max_step_tokens;
  const int32_t asked = options_.max_context_tokens;
  const int64_t context = std::min<int64_t>(asked > 0 ? std::min(asked, most) : most, affordable);
  limits_.max_context_tokens =
      static_cast<int32_t>(context / options_.block_tokens * options_.block_tokens);
  if (limits_.max_context_tokens >= kLeastMeasuredContext) return absl::OkStatus();
  return InvalidArgument(
      "{} sequences have room for {} tokens of context each: at least {} are measured; take fewer "
      "sequences or more KV bytes",
      limits_.max_sequences, limits_.max_context_tokens, kLeastMeasuredContext);
}

absl::Status StepSession::CreateStore() {
  const KvLayout layout = {.num_layers = model_.config.num_layers,
                           .num_kv_heads = model_.config.num_kv_heads,
                           .head_dim = model_.config.head_dim,
                           .block_tokens = options_.block_tokens,
                           .dtype = options_.kv_dtype.value_or(model_.config.dtype)};
  RETURN_IF_ERROR(layout.Validate());
  RETURN_IF_ERROR(SetLimits(layout));
  const int32_t longest = limits_.max_context_tokens + limits_.max_step_tokens;
  ASSIGN_OR_RETURN(stream_, model_.backend.device->NewComputeStream());
  ASSIGN_OR_RETURN(transformer_,
                   Transformer::Create(model_.config, *model_.weights, *model_.backend.device,
                                       *model_.backend.ops,
                                       {.max_tokens = limits_.max_step_tokens,
                                        .max_logit_rows = limits_.max_sequences + 1,
                                        .max_sequences = limits_.max_sequences + 1,
                                        .max_blocks_per_sequence = layout.BlocksFor(longest),
                                        .max_context_tokens = longest}));
  const auto blocks = static_cast<int32_t>(DummySteps::Blocks(limits_, options_.block_tokens));
  ASSIGN_OR_RETURN(
      store_, KvStore::Create(
                  {.layout = layout, .num_blocks = blocks, .prefix_caching = PrefixCaching::kOff},
                  *model_.backend.device, *stream_, nullptr));
  runner_ = std::make_unique<ModelRunner>(*transformer_, *model_.backend.ops, *store_,
                                          *model_.backend.device, *stream_);
  return absl::OkStatus();
}

absl::Status StepSession::WarmUp() {
  while (runner_->can_warm_up()) {
    ASSIGN_OR_RETURN(const bool last, runner_->WarmUp(DecodeSteps::kRecorded));
    if (last) break;
  }
  return absl::OkStatus();
}

}  // namespace tandem
