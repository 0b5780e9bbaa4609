#include "model/transformer/forward.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace tandem {
namespace {

// `count` rows of `view` from row `begin`.
TensorView Rows(const TensorView& view, int64_t begin, int64_t count) {
  TensorView rows = view;
  rows.data = static_cast<std::byte*>(view.data) + begin * view.row_stride * SizeOf(view.dtype);
  rows.shape[0] = count;
  return rows;
}

// Columns [begin, begin + heads * head_dim) of a [T, columns] f32 matrix, as [T, heads, head_dim].
TensorView Heads(const TensorView& matrix, int64_t begin, int64_t heads, int64_t head_dim) {
  return TensorView(static_cast<float*>(matrix.data) + begin, DType::kF32,
                    {matrix.rows(), heads, head_dim})
      .WithRowStride(matrix.row_stride);
}

// Hands out [rows, columns] f32 matrices one after the other; without memory it only counts.
class Carver {
 public:
  explicit Carver(std::byte* memory) : memory_(memory) {}

  TensorView Take(int64_t rows, int64_t columns) {
    constexpr int64_t kAlignment = 64;
    const int64_t offset = used_;
    used_ += (rows * columns * SizeOf(DType::kF32) + kAlignment - 1) / kAlignment * kAlignment;
    highest_ = std::max(highest_, used_);
    return TensorView(memory_ == nullptr ? nullptr : memory_ + offset, DType::kF32,
                      {rows, columns});
  }

  int64_t used() const { return used_; }
  // Goes back to an earlier used(): what follows shares memory with what was taken since.
  void Rewind(int64_t used) { used_ = used; }
  int64_t highest() const { return highest_; }

 private:
  std::byte* memory_;
  int64_t used_ = 0;
  int64_t highest_ = 0;
};

// For max_tokens rows T and max_logit_rows rows R. Attention and MLP never live at one time: the
// second group takes the memory of the first.
struct Activations {
  TensorView x;          // [T, H] the residual stream
  TensorView normed;     // [T, H]
  TensorView cos;        // [T, D/2]
  TensorView sin;        // [T, D/2]
  TensorView logits;     // [R, V]
  TensorView qkv;        // [T, (Hq + 2 Hkv) D]
  TensorView attention;  // [T, Hq D]
  TensorView gate_up;    // [T, 2F]
  TensorView gated;      // [T, F]

  static Activations Carve(const ModelConfig& c, const Transformer::Limits& limits,
                           Carver& carver) {
    const int64_t rows = limits.max_tokens;
    const int64_t q = int64_t{c.num_heads} * c.head_dim;
    const int64_t kv = int64_t{c.num_kv_heads} * c.head_dim;
    Activations a;
    a.x = carver.Take(rows, c.hidden_size);
    a.normed = carver.Take(rows, c.hidden_size);
    a.cos = carver.Take(rows, c.head_dim / 2);
    a.sin = carver.Take(rows, c.head_dim / 2);
    a.logits = carver.Take(limits.max_logit_rows, c.vocab_size);
    const int64_t shared = carver.used();
    a.qkv = carver.Take(rows, q + 2 * kv);
    a.attention = carver.Take(rows, q);
    carver.Rewind(shared);
    a.gate_up = carver.Take(rows, 2 * int64_t{c.intermediate_size});
    a.gated = carver.Take(rows, c.intermediate_size);
    return a;
  }

  // The same memory with the rows of one step.
  Activations ForRows(int64_t rows) const {
    Activations a = *this;
    for (TensorView* view :
         {&a.x, &a.normed, &a.cos, &a.sin, &a.qkv, &a.attention, &a.gate_up, &a.gated}) {
      view->shape[0] = rows;
    }
    return a;
  }
};

}  // namespace

struct Transformer::State {
  ModelConfig config;
  Limits limits;
  WeightStore& weights;
  Ops& ops;
  DeviceBuffer memory;
  Activations activations;                 // views of `memory`, all rows
  std::vector<float> inverse_frequencies;  // [D/2]
  std::vector<float> angles_cos;           // [max_tokens, D/2], the host's side of the tables
  std::vector<float> angles_sin;
  std::vector<int32_t> decode_starts;  // 0, 1, 2, ...: one query row each
  std::vector<int32_t> kept_rows;      // of this step: the logit rows, each once

  absl::Status CheckBatch(const ForwardBatch& batch) const;
  absl::Status FillRopeTables(Stream& stream, std::span<const int32_t> positions,
                              const Activations& a);
  absl::Status Qkv(Stream& stream, const LayerWeights& w, const Activations& a);
  absl::Status Attention(Stream& stream, const ForwardBatch& batch, const AttentionArgs& args);
  absl::Status KeepRows(Stream& stream, std::span<const int32_t> rows, const Activations& a);
  absl::Status RepeatLogits(Stream& stream, std::span<const int32_t> rows,
                            const TensorView& logits);
  absl::Status OutputAndMlp(Stream& stream, const LayerWeights& w, const Activations& a);
  absl::StatusOr<TensorView> Forward(Stream& stream, const ForwardBatch& batch,
                                     const KvPoolView& pool, const LayerStored& layer_stored);
};

// The batch is the engine's own making: what is wrong here is a bug, but one request's, so it does
// not take the process down.
absl::Status Transformer::State::CheckBatch(const ForwardBatch& batch) const {
  const auto rows = static_cast<int64_t>(batch.token_ids.size());
  const auto sequences = static_cast<int64_t>(batch.context_lens.size());
  if (rows < 1 || rows > limits.max_tokens) {
    return Internal("a step of {} tokens; this transformer takes 1 to {}", rows, limits.max_tokens);
  }
  if (std::ssize(batch.logit_rows) > limits.max_logit_rows) {
    return Internal("{} rows of logits; at most {}", batch.logit_rows.size(),
                    limits.max_logit_rows);
  }
  for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
    const int64_t floor = i == 0 ? 0 : batch.logit_rows[i - 1];
    if (batch.logit_rows[i] < floor || batch.logit_rows[i] >= rows) {
      return Internal("logit_rows[{}] is {}: they must rise from 0 to {}", i, batch.logit_rows[i],
                      rows - 1);
    }
  }
  if (std::ssize(batch.positions) != rows || std::ssize(batch.slots) != rows ||
      std::ssize(batch.query_starts) != sequences + 1 || batch.query_starts.back() != rows ||
      batch.num_decodes < 0 || batch.num_decodes > sequences ||
      batch.query_starts[sequences - batch.num_decodes] != rows - batch.num_decodes) {
    return Internal(
        "the parts of a step's batch do not fit together: {} tokens, {} positions, {} "
        "slots, {} sequences, {} decodes",
        rows, batch.positions.size(), batch.slots.size(), sequences, batch.num_decodes);
  }
  return absl::OkStatus();
}

// Angles in f32, as the reference computes them; their cosines in f64, rounded once.
absl::Status Transformer::State::FillRopeTables(Stream& stream, std::span<const int32_t> positions,
                                                const Activations& a) {
  const size_t half = inverse_frequencies.size();
  for (size_t t = 0; t < positions.size(); ++t) {
    const auto position = static_cast<float>(positions[t]);
    for (size_t i = 0; i < half; ++i) {
      const double angle = position * inverse_frequencies[i];
      angles_cos[t * half + i] = static_cast<float>(std::cos(angle));
      angles_sin[t * half + i] = static_cast<float>(std::sin(angle));
    }
  }
  const size_t bytes = positions.size() * half * sizeof(float);
  RETURN_IF_ERROR(stream.Copy({static_cast<std::byte*>(a.cos.data), bytes},
                              std::as_bytes(std::span(angles_cos)).first(bytes)));
  return stream.Copy({static_cast<std::byte*>(a.sin.data), bytes},
                     std::as_bytes(std::span(angles_sin)).first(bytes));
}

// x -> normed -> q, k, v, rotated.
absl::Status Transformer::State::Qkv(Stream& stream, const LayerWeights& w, const Activations& a) {
  const int64_t heads = config.num_heads;
  const int64_t kv_heads = config.num_kv_heads;
  const int64_t dim = config.head_dim;
  RETURN_IF_ERROR(ops.RmsNorm(
      stream, {.x = a.x, .weight = w.attention_norm, .out = a.normed, .eps = config.rms_norm_eps}));
  RETURN_IF_ERROR(
      ops.Gemm(stream, {.x = a.normed, .weight = w.qkv, .bias = w.qkv_bias, .out = a.qkv}));
  return ops.Rope(stream, {.q = Heads(a.qkv, 0, heads, dim),
                           .k = Heads(a.qkv, heads * dim, kv_heads, dim),
                           .cos = a.cos,
                           .sin = a.sin,
                           .q_norm = w.q_norm,
                           .k_norm = w.k_norm,
                           .norm_eps = config.rms_norm_eps});
}

// `args` of the whole batch, without its sequences: the leading ones are chunks, the last
// num_decodes have one row each.
absl::Status Transformer::State::Attention(Stream& stream, const ForwardBatch& batch,
                                           const AttentionArgs& args) {
  const size_t decodes = static_cast<size_t>(batch.num_decodes);
  const size_t chunks = batch.context_lens.size() - decodes;
  const int64_t chunk_rows = batch.query_starts[chunks];
  if (chunks > 0) {
    AttentionArgs part = args;
    part.q = Rows(args.q, 0, chunk_rows);
    part.out = Rows(args.out, 0, chunk_rows);
    part.query_starts = batch.query_starts.first(chunks + 1);
    part.context_lens = batch.context_lens.first(chunks);
    part.block_tables = Rows(batch.block_tables, 0, static_cast<int64_t>(chunks));
    RETURN_IF_ERROR(ops.AttentionPrefill(stream, part));
  }
  if (decodes > 0) {
    AttentionArgs part = args;
    part.q = Rows(args.q, chunk_rows, batch.num_decodes);
    part.out = Rows(args.out, chunk_rows, batch.num_decodes);
    part.query_starts = std::span(decode_starts).first(decodes + 1);
    part.context_lens = batch.context_lens.last(decodes);
    part.block_tables = Rows(batch.block_tables, static_cast<int64_t>(chunks), batch.num_decodes);
    RETURN_IF_ERROR(ops.AttentionDecode(stream, part));
  }
  return absl::OkStatus();
}

// Moves `rows` of the residual stream and of the attention's output to the front.
absl::Status Transformer::State::KeepRows(Stream& stream, std::span<const int32_t> rows,
                                          const Activations& a) {
  for (const TensorView& matrix : {a.x, a.attention}) {
    const auto bytes = static_cast<size_t>(matrix.row_stride * SizeOf(matrix.dtype));
    std::byte* base = static_cast<std::byte*>(matrix.data);
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto row = static_cast<size_t>(rows[i]);
      if (row == i) continue;
      RETURN_IF_ERROR(stream.Copy({base + i * bytes, bytes}, {base + row * bytes, bytes}));
    }
  }
  return absl::OkStatus();
}

// The logits of each row stand once at the front of `logits`, in order: spreads them so that
// logits[i] belongs to rows[i]. From the back, so that none is overwritten before it was copied.
absl::Status Transformer::State::RepeatLogits(Stream& stream, std::span<const int32_t> rows,
                                              const TensorView& logits) {
  const auto bytes = static_cast<size_t>(logits.row_stride * SizeOf(logits.dtype));
  std::byte* base = static_cast<std::byte*>(logits.data);
  size_t from = kept_rows.size();
  for (size_t i = rows.size(); i-- > 0;) {
    if (i + 1 == rows.size() || rows[i] != rows[i + 1]) --from;
    if (from == i) break;
    RETURN_IF_ERROR(stream.Copy({base + i * bytes, bytes}, {base + from * bytes, bytes}));
  }
  return absl::OkStatus();
}

// x += output(attention); x += down(silu(gate(norm x)) * up(norm x)).
absl::Status Transformer::State::OutputAndMlp(Stream& stream, const LayerWeights& w,
                                              const Activations& a) {
  RETURN_IF_ERROR(ops.Gemm(stream, {.x = a.attention,
                                    .weight = w.output,
                                    .bias = w.output_bias,
                                    .out = a.x,
                                    .output = GemmOutput::kAccumulate}));
  RETURN_IF_ERROR(ops.RmsNorm(
      stream, {.x = a.x, .weight = w.mlp_norm, .out = a.normed, .eps = config.rms_norm_eps}));
  RETURN_IF_ERROR(ops.Gemm(stream, {.x = a.normed, .weight = w.gate_up, .out = a.gate_up}));
  RETURN_IF_ERROR(ops.SiluMul(stream, {.gate_up = a.gate_up, .out = a.gated}));
  return ops.Gemm(stream,
                  {.x = a.gated, .weight = w.down, .out = a.x, .output = GemmOutput::kAccumulate});
}

absl::StatusOr<TensorView> Transformer::State::Forward(Stream& stream, const ForwardBatch& batch,
                                                       const KvPoolView& pool,
                                                       const LayerStored& layer_stored) {
  RETURN_IF_ERROR(CheckBatch(batch));
  const int64_t heads = config.num_heads;
  const int64_t kv_heads = config.num_kv_heads;
  const int64_t dim = config.head_dim;
  kept_rows.assign(batch.logit_rows.begin(), batch.logit_rows.end());
  kept_rows.erase(std::unique(kept_rows.begin(), kept_rows.end()), kept_rows.end());
  const auto logit_rows = static_cast<int64_t>(kept_rows.size());
  Activations a = activations.ForRows(static_cast<int64_t>(batch.token_ids.size()));
  const TensorView logits = Rows(a.logits, 0, logit_rows);

  ASSIGN_OR_RETURN(const PackedMatrix embedding, weights.Embedding());
  RETURN_IF_ERROR(
      ops.Embedding(stream, {.token_ids = batch.token_ids, .table = embedding, .out = a.x}));
  RETURN_IF_ERROR(FillRopeTables(stream, batch.positions, a));

  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    ASSIGN_OR_RETURN(const LayerWeights w, weights.Layer(layer));
    RETURN_IF_ERROR(Qkv(stream, w, a));
    RETURN_IF_ERROR(ops.StoreKv(stream, {.k = Heads(a.qkv, heads * dim, kv_heads, dim),
                                         .v = Heads(a.qkv, (heads + kv_heads) * dim, kv_heads, dim),
                                         .slots = batch.slots,
                                         .pool = pool,
                                         .layer = layer}));
    if (layer_stored) layer_stored(layer);
    // From the last layer's KV on, only the rows whose logits are wanted matter.
    const bool last = layer + 1 == config.num_layers;
    if (last && logit_rows == 0) return logits;
    RETURN_IF_ERROR(Attention(stream, batch,
                              {.q = Heads(a.qkv, 0, heads, dim),
                               .pool = pool,
                               .layer = layer,
                               .out = Heads(a.attention, 0, heads, dim),
                               .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim))),
                               .window = config.sliding_window}));
    if (last) {
      RETURN_IF_ERROR(KeepRows(stream, kept_rows, a));
      a = activations.ForRows(logit_rows);
    }
    RETURN_IF_ERROR(OutputAndMlp(stream, w, a));
  }

  ASSIGN_OR_RETURN(const HeadWeights head, weights.Head());
  RETURN_IF_ERROR(ops.RmsNorm(
      stream, {.x = a.x, .weight = head.final_norm, .out = a.normed, .eps = config.rms_norm_eps}));
  RETURN_IF_ERROR(ops.Gemm(stream, {.x = a.normed, .weight = head.lm_head, .out = logits}));
  const TensorView all = Rows(a.logits, 0, std::ssize(batch.logit_rows));
  RETURN_IF_ERROR(RepeatLogits(stream, batch.logit_rows, all));
  return all;
}

Transformer::Transformer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Transformer::~Transformer() = default;

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Create(const ModelConfig& config,
                                                                 WeightStore& weights,
                                                                 Device& device, Ops& ops,
                                                                 const Limits& limits) {
  TANDEM_CHECK(limits.max_tokens > 0 && limits.max_logit_rows > 0, "a transformer without rows");
  Carver counter(nullptr);
  Activations::Carve(config, limits, counter);
  ASSIGN_OR_RETURN(DeviceBuffer memory, device.Allocate(counter.highest()));
  Carver carver(memory.data());
  std::unique_ptr<State> state(new State{.config = config,
                                         .limits = limits,
                                         .weights = weights,
                                         .ops = ops,
                                         .memory = std::move(memory),
                                         .activations = Activations::Carve(config, limits, carver),
                                         .inverse_frequencies = RopeInverseFrequencies(config)});
  const size_t table = static_cast<size_t>(limits.max_tokens) * state->inverse_frequencies.size();
  state->angles_cos.resize(table);
  state->angles_sin.resize(table);
  for (int32_t i = 0; i <= limits.max_tokens; ++i) state->decode_starts.push_back(i);
  return std::unique_ptr<Transformer>(new Transformer(std::move(state)));
}

absl::StatusOr<TensorView> Transformer::Forward(Stream& stream, const ForwardBatch& batch,
                                                const KvPoolView& pool,
                                                const LayerStored& layer_stored) {
  return state_->Forward(stream, batch, pool, layer_stored);
}

}  // namespace tandem
