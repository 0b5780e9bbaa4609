#include "bench/cuda_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "base/status.h"
#include "kernels/cuda/device/cuda_status.h"

namespace tandem {
namespace {

constexpr int32_t kBlockTokens = 16;

// Weights of one deviation per matrix, 1 / sqrt(inputs), and norms that change nothing.
class RandomWeights final : public WeightStore {
 public:
  static absl::StatusOr<std::unique_ptr<WeightStore>> Create(CudaBench& bench, CaseMemory& memory,
                                                             const ModelConfig& config) {
    auto made = std::make_unique<RandomWeights>();
    RandomWeights& w = *made;
    const int64_t hidden = config.hidden_size;
    const int64_t q = int64_t{config.num_heads} * config.head_dim;
    const int64_t kv = int64_t{config.num_kv_heads} * config.head_dim;
    const int64_t mlp = config.intermediate_size;
    ASSIGN_OR_RETURN(w.embedding_, w.Matrix(bench, memory, config.vocab_size, hidden));
    ASSIGN_OR_RETURN(w.head_.lm_head, w.Matrix(bench, memory, config.vocab_size, hidden));
    ASSIGN_OR_RETURN(w.head_.final_norm, Ones(bench, memory, hidden));
    for (int32_t i = 0; i < config.num_layers; ++i) {
      LayerWeights& layer = w.layers_.emplace_back();
      ASSIGN_OR_RETURN(layer.attention_norm, Ones(bench, memory, hidden));
      ASSIGN_OR_RETURN(layer.mlp_norm, Ones(bench, memory, hidden));
      ASSIGN_OR_RETURN(layer.qkv, w.Matrix(bench, memory, q + 2 * kv, hidden));
      ASSIGN_OR_RETURN(layer.output, w.Matrix(bench, memory, hidden, q));
      ASSIGN_OR_RETURN(layer.gate_up, w.Matrix(bench, memory, 2 * mlp, hidden));
      ASSIGN_OR_RETURN(layer.down, w.Matrix(bench, memory, hidden, mlp));
      if (!config.qk_norm) continue;
      ASSIGN_OR_RETURN(layer.q_norm, Ones(bench, memory, config.head_dim));
      ASSIGN_OR_RETURN(layer.k_norm, Ones(bench, memory, config.head_dim));
    }
    return std::unique_ptr<WeightStore>(std::move(made));
  }

  absl::StatusOr<PackedMatrix> Embedding() override { return embedding_; }
  absl::StatusOr<LayerWeights> Layer(int32_t layer) override {
    return layers_[static_cast<size_t>(layer)];
  }
  absl::StatusOr<HeadWeights> Head() override { return head_; }
  bool has_codes() const override { return false; }
  bool addresses_are_fixed() const override { return true; }
  absl::StatusOr<bool> loaded() const override { return true; }
  int64_t resident_bytes() const override { return bytes_; }

 private:
  // Random values are as random in whatever order a backend packs them.
  absl::StatusOr<PackedMatrix> Matrix(CudaBench& bench, CaseMemory& memory, int64_t n, int64_t k) {
    const int64_t bytes = bench.ops().PackedBytes(DType::kBF16, n, k);
    bytes_ += bytes;
    ASSIGN_OR_RETURN(const TensorView data,
                     bench.Normal(memory, DType::kBF16, {bytes / SizeOf(DType::kBF16)},
                                  1 / std::sqrt(static_cast<float>(k))));
    return PackedMatrix{static_cast<std::byte*>(data.data), DType::kBF16, n, k};
  }
  static absl::StatusOr<TensorView> Ones(CudaBench& bench, CaseMemory& memory, int64_t n) {
    const std::vector<float> ones(static_cast<size_t>(n), 1.0f);
    ASSIGN_OR_RETURN(const float* data, bench.Upload(memory, std::span<const float>(ones)));
    return TensorView(const_cast<float*>(data), DType::kF32, {n});
  }

  PackedMatrix embedding_;
  std::vector<LayerWeights> layers_;
  HeadWeights head_;
  int64_t bytes_ = 0;
};

}  // namespace

ModelConfig Qwen3Shape(int32_t num_layers) {
  ModelConfig config;
  config.model_type = "qwen3";
  config.hidden_size = 4096;
  config.num_layers = num_layers;
  config.num_heads = 32;
  config.num_kv_heads = 8;
  config.head_dim = 128;
  config.intermediate_size = 12288;
  config.vocab_size = 151936;
  config.max_position_embeddings = 40960;
  config.rms_norm_eps = 1e-6f;
  config.rope.theta = 1e6f;
  config.qk_norm = true;
  return config;
}

absl::StatusOr<std::unique_ptr<CudaModel>> CudaModel::Create(CudaBench& bench, Ops& ops,
                                                             const Options& options) {
  std::unique_ptr<CudaModel> made(new CudaModel(bench, options));
  CudaModel& m = *made;
  m.blocks_per_sequence_ = (options.max_context_tokens + kBlockTokens - 1) / kBlockTokens;
  ASSIGN_OR_RETURN(m.weights_, RandomWeights::Create(bench, m.memory_, options.config));
  RETURN_IF_ERROR(m.MakePool());
  m.next_ids_.assign(static_cast<size_t>(options.max_sequences), 1);
  RETURN_IF_ERROR(m.ComputeWith(ops));
  return made;
}

absl::Status CudaModel::MakePool() {
  const ModelConfig& config = options_.config;
  // The longest sequence alone, or all together.
  const int64_t tokens = std::max<int64_t>(options_.max_context_tokens, options_.max_total_tokens);
  const int64_t blocks = tokens / kBlockTokens + options_.max_sequences;
  pool_ = {.dtype = DType::kBF16,
           .num_layers = config.num_layers,
           .num_blocks = static_cast<int32_t>(blocks),
           .num_kv_heads = config.num_kv_heads,
           .block_tokens = kBlockTokens,
           .head_dim = config.head_dim};
  ASSIGN_OR_RETURN(
      const TensorView data,
      bench_.Normal(memory_, DType::kBF16,
                    {config.num_layers, blocks, pool_.ExtentBytes() / SizeOf(pool_.dtype)}));
  pool_.data = static_cast<std::byte*>(data.data);
  blocks_.resize(static_cast<size_t>(blocks));
  std::iota(blocks_.begin(), blocks_.end(), 0);
  std::shuffle(blocks_.begin(), blocks_.end(), std::mt19937(4));
  return absl::OkStatus();
}

absl::Status CudaModel::ComputeWith(Ops& ops) {
  ops_ = &ops;
  transformer_.reset();
  ASSIGN_OR_RETURN(transformer_,
                   Transformer::Create(options_.config, *weights_, bench_.device(), ops,
                                       {.max_tokens = options_.max_tokens,
                                        .max_logit_rows = options_.max_sequences,
                                        .max_sequences = options_.max_sequences,
                                        .max_blocks_per_sequence = blocks_per_sequence_,
                                        .max_context_tokens = options_.max_context_tokens}));
  return absl::OkStatus();
}

void CudaModel::Append(int32_t sequence, int32_t begin, int32_t end) {
  const int32_t count = (end + kBlockTokens - 1) / kBlockTokens;
  const auto first = static_cast<int64_t>(tables_.size());
  for (int32_t i = 0; i < count; ++i) tables_.push_back(blocks_[static_cast<size_t>(first + i)]);
  for (int32_t position = begin; position < end; ++position) {
    const int64_t block = tables_[static_cast<size_t>(first + position / kBlockTokens)];
    ids_.push_back((next_ids_[static_cast<size_t>(sequence)] + position) %
                   options_.config.vocab_size);
    positions_.push_back(position);
    slots_.push_back(block * kBlockTokens + position % kBlockTokens);
  }
  query_starts_.push_back(static_cast<int32_t>(ids_.size()));
  context_lens_.push_back(end);
  table_starts_.push_back(static_cast<int32_t>(tables_.size()));
  logit_rows_.push_back(static_cast<int32_t>(ids_.size()) - 1);
}

// Takes what was appended since the last pass.
absl::StatusOr<TensorView> CudaModel::Forward(int32_t num_decodes) {
  query_starts_.insert(query_starts_.begin(), 0);
  table_starts_.insert(table_starts_.begin(), 0);
  sample_rows_.assign(logit_rows_.size(), SampleRow{.num_logprobs = -1});
  const ForwardBatch batch = {.token_ids = ids_,
                              .positions = positions_,
                              .slots = slots_,
                              .query_starts = query_starts_,
                              .context_lens = context_lens_,
                              .block_tables = {.ids = tables_, .starts = table_starts_},
                              .num_decodes = num_decodes,
                              .logit_rows = logit_rows_,
                              .sample_rows = sample_rows_};
  auto logits = transformer_->Forward(bench_.stream(), batch, pool_, nullptr);
  ids_.clear();
  positions_.clear();
  slots_.clear();
  query_starts_.clear();
  context_lens_.clear();
  tables_.clear();
  table_starts_.clear();
  logit_rows_.clear();
  return logits;
}

absl::Status CudaModel::QueuePrefill(int32_t tokens) {
  Append(0, 0, tokens);
  return Forward(0).status();
}

absl::StatusOr<TensorView> CudaModel::QueueDecode(int32_t batch, int32_t position) {
  for (int32_t i = 0; i < batch; ++i) Append(i, position, position + 1);
  return Forward(batch);
}

absl::Status CudaModel::Sample(const TensorView& logits) {
  const auto rows = static_cast<size_t>(logits.rows());
  sampled_.resize(rows);
  RETURN_IF_ERROR(ops_->Sample(bench_.stream(), {.logits = logits,
                                                 .rows = sample_rows_,
                                                 .out = sampled_,
                                                 .plan = transformer_->sample_plan()}));
  for (size_t i = 0; i < rows; ++i) next_ids_[i] = sampled_[i].token_id;
  return absl::OkStatus();
}

}  // namespace tandem
