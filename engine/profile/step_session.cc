#include "engine/profile/step_session.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "base/status.h"
#include "model/checkpoint/checkpoint.h"

namespace tandem {
namespace {

// Shorter contexts would not show what a token of context costs.
constexpr int32_t kLeastContext = 64;

}  // namespace

StepFeatures StepShape::features() const {
  return {.prefill_tokens = prefill_tokens,
          .prefill_pairs = CausalPairs(cached_tokens, int64_t{cached_tokens} + prefill_tokens),
          .decode_sequences = sequences,
          .decode_context = int64_t{sequences} * context_tokens};
}

absl::StatusOr<std::unique_ptr<StepSession>> StepSession::Open(const Options& options,
                                                               LoadProgress progress) {
  std::unique_ptr<StepSession> session(new StepSession());
  session->options_ = options;
  RETURN_IF_ERROR(session->LoadWeights(std::move(progress)));
  RETURN_IF_ERROR(session->CreateStore());
  RETURN_IF_ERROR(session->WarmUp());
  RETURN_IF_ERROR(session->AddSequences());
  RETURN_IF_ERROR(session->FillKv());
  return session;
}

absl::Status StepSession::LoadWeights(LoadProgress progress) {
  const BackendOptions threads = {.num_threads = options_.threads};
  ASSIGN_OR_RETURN(backend_, OpenBackend(options_.device, threads));
  ASSIGN_OR_RETURN(config_, LoadModelConfig(options_.model_dir));
  ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(options_.model_dir));
  AdoptDType(*checkpoint, config_);
  ASSIGN_OR_RETURN(Backend packing, OpenBackend(options_.device, threads));
  ASSIGN_OR_RETURN(weights_, LoadResidentWeights(config_, std::move(checkpoint), *backend_.device,
                                                 std::move(packing.ops), std::move(progress)));
  return weights_->Head().status();  // the last group: all is packed
}

absl::Status StepSession::CreateStore() {
  const KvLayout layout = {.num_layers = config_.num_layers,
                           .num_kv_heads = config_.num_kv_heads,
                           .head_dim = config_.head_dim,
                           .block_tokens = options_.block_tokens,
                           .dtype = options_.kv_dtype.value_or(config_.dtype)};
  RETURN_IF_ERROR(layout.Validate());
  const int32_t model_context = config_.max_position_embeddings;
  options_.max_step_tokens = std::min(options_.max_step_tokens, model_context / 2);
  // The prompt has a chunk behind its context.
  const int64_t affordable =
      (options_.max_kv_bytes / layout.BytesPerToken() - options_.max_step_tokens) /
      (options_.max_sequences + 1);
  int32_t& context = options_.max_context_tokens;
  const int32_t most = model_context - options_.max_step_tokens;
  context = static_cast<int32_t>(std::min<int64_t>(context > 0 ? context : most, most));
  context = static_cast<int32_t>(std::min<int64_t>(context, affordable));
  context = context / options_.block_tokens * options_.block_tokens;
  if (context < kLeastContext) {
    return InvalidArgument(
        "{} sequences have room for {} tokens of context each: at least {} are measured; take "
        "fewer "
        "sequences or more KV bytes",
        options_.max_sequences, context, kLeastContext);
  }
  const int32_t longest = context + options_.max_step_tokens;
  ASSIGN_OR_RETURN(stream_, backend_.device->NewStream());
  ASSIGN_OR_RETURN(transformer_,
                   Transformer::Create(config_, *weights_, *backend_.device, *backend_.ops,
                                       {.max_tokens = options_.max_step_tokens,
                                        .max_logit_rows = options_.max_sequences + 1,
                                        .max_sequences = options_.max_sequences + 1,
                                        .max_blocks_per_sequence = layout.BlocksFor(longest),
                                        .max_context_tokens = longest}));
  const int32_t blocks =
      layout.BlocksFor(longest) + options_.max_sequences * layout.BlocksFor(context);
  ASSIGN_OR_RETURN(
      store_, KvStore::Create(
                  {.layout = layout, .num_blocks = blocks, .prefix_caching = PrefixCaching::kOff},
                  *backend_.device, *stream_, nullptr));
  runner_ = std::make_unique<ModelRunner>(*transformer_, *backend_.ops, *store_, *backend_.device,
                                          *stream_);
  return absl::OkStatus();
}

absl::Status StepSession::WarmUp() {
  while (runner_->can_warm_up()) {
    ASSIGN_OR_RETURN(const bool last, runner_->WarmUp(DecodeSteps::kRecorded));
    if (last) break;
  }
  return absl::OkStatus();
}

absl::Status StepSession::AddSequences() {
  std::mt19937 random(1);
  const auto any_token = [&random, this] {
    return static_cast<int32_t>(random() % static_cast<uint32_t>(config_.vocab_size));
  };
  EngineRequest request;
  request.prompt = {0};
  request.max_tokens = 1;
  request_ = std::make_unique<RequestState>(std::move(request));
  for (int32_t i = 0; i <= options_.max_sequences; ++i) {
    const int32_t context = options_.max_context_tokens;
    const int32_t tokens = i == 0 ? context + options_.max_step_tokens : context;
    const auto id = static_cast<uint64_t>(i) + 1;
    auto sequence = std::make_unique<Sequence>(SequenceId(id), *request_, store_->NewKey(""));
    Row& row = sequence->rows.emplace_back();
    for (int32_t position = 0; position < tokens; ++position) row.tokens.push_back(any_token());
    RETURN_IF_ERROR(store_->Reserve(sequence->tables.emplace_back(options_.block_tokens), tokens));
    sequences_.push_back(std::move(sequence));
  }
  return absl::OkStatus();
}

// Computes the context of the first sequence, and copies it for the others: what the KV holds does
// not change the time of a step.
absl::Status StepSession::FillKv() {
  const int32_t context = options_.max_context_tokens;
  for (int32_t begin = 0; begin < context; begin += options_.max_step_tokens) {
    const int32_t tokens = std::min(options_.max_step_tokens, context - begin);
    RETURN_IF_ERROR(Run({.prefill_tokens = tokens, .cached_tokens = begin}).status());
  }
  const auto blocks_of = [this](size_t sequence) {
    return sequences_[sequence]->tables.front().block_ids();
  };
  std::vector<BlockPair> pairs;
  for (size_t i = 1; i < sequences_.size(); ++i) {
    const std::span<const int32_t> to = blocks_of(i);
    for (size_t block = 0; block < to.size(); ++block) {
      pairs.push_back({blocks_of(0)[block], to[block]});
    }
  }
  RETURN_IF_ERROR(backend_.ops->CopyBlocks(*stream_, {.pool = store_->view(), .pairs = {pairs}}));
  return stream_->Synchronize();
}

absl::StatusOr<Duration> StepSession::Run(const StepShape& shape) {
  chunks_.clear();
  if (shape.prefill_tokens > 0) {
    chunks_.push_back({.sequence = sequences_.front().get(),
                       .begin = shape.cached_tokens,
                       .count = shape.prefill_tokens,
                       .samples = 1});
  }
  for (int32_t i = 1; i <= shape.sequences; ++i) {
    chunks_.push_back({.sequence = sequences_[static_cast<size_t>(i)].get(),
                       .begin = shape.context_tokens - 1,
                       .count = 1,
                       .samples = 1,
                       .decode = true});
  }
  const auto began = std::chrono::steady_clock::now();
  RETURN_IF_ERROR(runner_->Forward(chunks_, shape.sequences, nullptr));
  if (shape.prefill_tokens > 0) RETURN_IF_ERROR(runner_->Await());
  for (const absl::StatusOr<SampledToken>& token : runner_->Sample(chunks_)) {
    RETURN_IF_ERROR(token.status());
  }
  return std::chrono::steady_clock::now() - began;
}

}  // namespace tandem
