#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/kv_row.h"
#include "base/token_bias.h"
#include "kernels/staged_span.h"
#include "kernels/tensor.h"

// One struct per op. Shapes: T tokens of the step, S sequences, H hidden, Hq query heads, Hkv KV
// heads, D head_dim, P positions, V vocabulary, R rows that are sampled. `act` is the type of the
// activations: f32 on every backend, and where Ops::ActivationType says so also the weights' type.
// The residual stream, norm weights, biases and logits are f32 everywhere.

namespace tandem {

// out[t] = table[token_ids[t]].
struct EmbeddingArgs {
  StagedSpan<int32_t> token_ids;  // [T], each in [0, table.n)
  PackedMatrix table;             // n = V, k = H
  TensorView out;                 // [T, H] f32
};

// out = x / sqrt(mean(x^2) + eps) * weight, over the last dimension.
// Source: Zhang and Sennrich, "Root mean square layer normalization", 2019.
struct RmsNormArgs {
  TensorView x;       // [T, H] f32
  TensorView weight;  // [H] f32
  TensorView out;     // [T, H] act; may alias x when f32
  float eps = 1e-5f;
};

// Rotates q and k in place, after a norm over each head where the family has one (Qwen3).
// Pairs (i, i + D/2), as the HuggingFace checkpoints are laid out.
// Source: Su et al., "RoFormer", 2021.
struct RopeArgs {
  TensorView q;                   // [T, Hq, D] act, in place
  TensorView k;                   // [T, Hkv, D] act, in place
  StagedSpan<int32_t> positions;  // [T], each in [0, P): the row of the tables
  TensorView cos;                 // [P, D/2] f32
  TensorView sin;                 // [P, D/2] f32
  TensorView q_norm;              // [D] f32, or absent
  TensorView k_norm;              // [D] f32, or absent
  float norm_eps = 1e-6f;
};

enum class GemmOutput : uint8_t { kOverwrite, kAccumulate };

// out = x * weight^T (+ bias), or out += ...; sums in f32 in an order that depends on k alone.
struct GemmArgs {
  TensorView x;         // [T, k] act
  PackedMatrix weight;  // [n, k]; of x's type or int8, unless x is f32
  TensorView bias;      // [n] f32, or absent
  TensorView out;       // [T, n] f32, or x's type if it overwrites; must not alias x
  GemmOutput output = GemmOutput::kOverwrite;
};

// out[t, i] = silu(gate_up[t, i]) * gate_up[t, F + i].
struct SiluMulArgs {
  TensorView gate_up;  // [T, 2F] act
  TensorView out;      // [T, F] of gate_up's type; must not alias gate_up
};

// All layers of the block pool: pool[layer][block][K|V][Hkv][block_tokens][row]. The bytes of one
// (layer, block) are one extent (kvstore/kv_layout.h is the source of these numbers), a row is K or
// V of one token and head (base/kv_row.h).
struct KvPoolView {
  std::byte* data = nullptr;
  DType dtype = DType::kBF16;  // f32 | f16 | bf16 | f8e4m3 | k8v8 | k6v5 | k4v3
  int32_t num_layers = 0;
  int32_t num_blocks = 0;
  int32_t num_kv_heads = 0;
  int32_t block_tokens = 0;  // power of two, 8 to 256
  int32_t head_dim = 0;
  // f8e4m3: the pool holds K / k_scale and V / v_scale, with values beyond +-448 clamped. The
  // scales are 1 for every other type.
  float k_scale = 1;
  float v_scale = 1;

  int64_t ExtentBytes() const {
    return int64_t{num_kv_heads} * block_tokens * KvHeadBytes(dtype, head_dim);
  }
  int64_t RowBytes(KvSide side) const { return KvRowBytes(dtype, side, head_dim); }
  // The row of a token of a block, in bytes from the beginning of the extent; the rows of the
  // tokens after it follow.
  int64_t RowAt(KvSide side, int32_t kv_head, int64_t token) const {
    const int64_t keys = side == KvSide::kKeys ? 0 : num_kv_heads * RowBytes(KvSide::kKeys);
    return keys * block_tokens + (int64_t{kv_head} * block_tokens + token) * RowBytes(side);
  }
  std::byte* Extent(int32_t layer, int32_t block) const {
    return data + (int64_t{layer} * num_blocks + block) * ExtentBytes();
  }
};

// Writes K and V of each token into its slot, rounding to the pool's dtype (ties to even). In a
// quantised type the scale of a group is the least f16 with which no integer exceeds the type's
// largest one.
struct StoreKvArgs {
  TensorView k;               // [T, Hkv, D] act
  TensorView v;               // [T, Hkv, D], k's type
  StagedSpan<int64_t> slots;  // [T]: block * block_tokens + offset; -1: not stored
  KvPoolView pool;
  int32_t layer = 0;
};

// The block tables of S sequences in one array: block i of sequence s, its tokens [i *
// block_tokens, (i + 1) * block_tokens), is ids[starts[s] + i].
struct BlockTables {
  StagedSpan<int32_t> ids;     // entries that no row sees are not read
  StagedSpan<int32_t> starts;  // [S + 1], rising, inside ids

  int64_t num_sequences() const { return static_cast<int64_t>(starts.size()) - 1; }
  std::span<const int32_t> Of(size_t seq) const {
    const auto begin = static_cast<size_t>(starts[seq]);
    return ids.host().subspan(begin, static_cast<size_t>(starts[seq + 1]) - begin);
  }
  BlockTables Sequences(size_t begin, size_t count) const {
    return {ids, starts.subspan(begin, count + 1)};
  }
};

// Where attention cuts a context to compute its parts in parallel.
enum class SplitMode : uint8_t {
  kBalanced,  // into parts of equal work: a row's last bits may depend on the rest of the batch
  kFixed,     // at fixed positions: a row's result is the same in every batch
};

// How the sequences of a step are cut, made once per step (Ops::PlanDecode, Ops::PlanPrefill) and
// used by every layer. Valid until the next plan of that kind by the same Ops; it fits every call
// with the same query_starts, context_lens, heads, window and splits. A plan of PlanPrefill can be
// used once the staging that it was made with has been uploaded.
struct AttentionPlan {
  const void* data = nullptr;  // owned by the backend; null: the op plans by itself
};

// Causal softmax attention of ragged query rows over a paged context. Row i of sequence s has the
// absolute position context_lens[s] - q_len(s) + i and sees the positions up to its own, of these
// only the last `window` when window > 0. K and V of the step's own tokens are already in the pool.
// In decode a context of 0 is a row that only fills up the batch: it sees nothing, and its output
// is 0. With SplitMode::kFixed, and always on the CPU, the sums of one row run in an order that
// depends on its position alone; on the CPU it is the same in prefill and in decode (P2). NaN in
// slots past the context is never read into a result.
// Source: Dao, "FlashAttention-2", 2023; Kwon et al., "PagedAttention", 2023.
struct AttentionArgs {
  TensorView q;  // [T, Hq, D] act
  KvPoolView pool;
  int32_t layer = 0;
  StagedSpan<int32_t> query_starts;  // [S + 1]: rising, from 0 to T
  StagedSpan<int32_t> context_lens;  // [S], the step's tokens included; 0 only with q_len 0, or in
                                     // decode
  BlockTables block_tables;
  TensorView out;      // [T, Hq, D], q's type; must not alias q
  float scale = 0;     // usually 1 / sqrt(D)
  int32_t window = 0;  // 0: all
  float softcap = 0;   // > 0: a logit x becomes softcap * tanh(x / softcap)
  TensorView lse;      // [T, Hq] f32, or absent: ln(sum(e^logit)), -inf where no key is seen
  // In decode alone: [S, Hkv, max_blocks] f32, or absent. The softmax weights in each block, summed
  // over the query heads of the group, 0 for a block that is not seen. max_blocks is at least the
  // number of blocks of the longest context.
  TensorView block_mass;
  SplitMode splits = SplitMode::kBalanced;
  AttentionPlan plan;
};

// How much attention each token of the context got from the last rows of each sequence, by which an
// eviction policy decides what to keep: out[s, h, t] is the sum of the softmax weights on token t
// over the last `last_rows` query rows of s (or all, if fewer) and over the query heads of KV head
// h, where each row's weights are multiplied by its decay. A token that no counted row sees has 0.
// A prompt that is computed in several chunks can be scored chunk by chunk: `rows_behind` says how
// many rows of the later chunks are counted, and the results of all chunks are added. `attention`
// is what AttentionPrefill was called with, and its lse what that wrote; its out, plan and
// block_mass are not looked at.
// Source: Li et al., "SnapKV", 2024; Zhang et al., "H2O", 2023.
struct ColumnMassArgs {
  static constexpr int32_t kRowsPerDecay = 16;

  AttentionArgs attention;
  int32_t last_rows = 32;   // 1 to 1024
  int32_t rows_behind = 0;  // 0 or more: counted rows of later calls (chunks)
  // (0, 1]: a row that has d rows behind it, those of `rows_behind` included, has the factor
  // decay^(d / kRowsPerDecay), with an integer division.
  float decay = 1;
  TensorView out;  // [S, Hkv, max_tokens] f32, max_tokens at least the longest context
};

struct BlockPair {
  int32_t from = 0;
  int32_t to = 0;
};

// Copies whole blocks, all layers, for copy-on-write. No block is both read and written.
struct CopyBlocksArgs {
  KvPoolView pool;
  StagedSpan<BlockPair> pairs;
};

// Copies tokens within the pool, each KV head of each layer by its own list: K and V of head h in
// layer l are copied bit by bit from slot from[(l * num_kv_heads + h) * count + i] to slot to[i].
// `to` names no slot twice and no slot that is read.
struct CopyTokensArgs {
  KvPoolView pool;
  // [num_layers, num_kv_heads, count] slots: block * block_tokens + offset
  std::span<const int32_t> from;
  std::span<const int32_t> to;  // [count]

  std::span<const int32_t> FromIn(int32_t layer, int32_t head) const {
    const auto list = static_cast<size_t>(layer) * pool.num_kv_heads + head;
    return from.subspan(list * to.size(), to.size());
  }
};

struct LayerBlock {
  int32_t layer = 0;
  int32_t block = 0;
};

// Gathers extents: staging[i] = extent(items[i]); or scatters them: extent(items[i]) = staging[i].
struct MoveBlocksArgs {
  KvPoolView pool;
  std::span<const LayerBlock> items;
  std::span<std::byte> staging;  // items.size() * ExtentBytes()
};

// Tokens of one sequence that lie side by side in an extent of another layout and in one of the
// pool: [src_token, src_token + num_tokens) of `src` go to [dst_token, ...) of `dst`.
struct KvRun {
  std::span<const std::byte>
      src;  // one extent [K|V][Hkv][src_block_tokens][row], begins on 16 bytes
  int32_t src_token = 0;
  LayerBlock dst;
  int32_t dst_token = 0;
  int32_t num_tokens = 0;
};

// Copies tokens into blocks of another size, as numbers of another type. Every value stays as it
// is, or, where the pool's type is quantised and the source's is not, is rounded as by StoreKv. The
// tokens around them stay. No two runs write the same token.
struct ConvertKvArgs {
  KvPoolView pool;                 // scales 1
  DType src_dtype = DType::kBF16;  // one that Widens or Quantises to the pool's type
  int32_t src_block_tokens = 0;    // power of two, 8 to 256
  std::span<const KvRun> runs;

  // The pool with the type and the block size of the sources.
  KvPoolView AsSource() const {
    KvPoolView source = pool;
    source.dtype = src_dtype;
    source.block_tokens = src_block_tokens;
    return source;
  }
};

// How one row of logits is sampled. temperature 0 is greedy: the lowest id of the maximum.
struct SampleRow {
  float temperature = 0;
  int32_t top_k = 0;             // 0: all
  float top_p = 1;               // (0, 1]
  float min_p = 0;               // [0, 1): drop tokens below min_p * p(max)
  float repetition_penalty = 1;  // > 0, over prompt and output (CTRL, Keskar et al., 2019)
  float presence_penalty = 0;    // over the output
  float frequency_penalty = 0;   // over the output
  uint64_t seed = 0;
  int64_t position = 0;      // of the token to sample: the draw is a function of (seed, position)
  int32_t num_logprobs = 0;  // alternatives to report beside the sampled token; -1: none at all
  std::span<const int32_t> prompt_ids;
  std::span<const int32_t> output_ids;
  std::span<const TokenBias> biases;      // each token once, at most kMaxLogitBiases
  std::span<const int32_t> excluded_ids;  // tokens not to sample
  std::span<const int32_t> allowed_ids;   // the only tokens to sample; empty: all
  int32_t given_token = -1;  // the token where none is to be sampled, only its log-probability
                             // found; -1: sample
};

inline bool HasPenalties(const SampleRow& row) {
  return row.repetition_penalty != 1 || row.presence_penalty != 0 || row.frequency_penalty != 0;
}
inline bool HasExclusions(const SampleRow& row) {
  return !row.excluded_ids.empty() || !row.allowed_ids.empty();
}

struct TokenLogprob {
  int32_t token_id = 0;
  float logprob = 0;
};

struct SampledToken {
  int32_t token_id = 0;
  float logprob = 0;              // under the model's distribution, before the row's own settings
  std::vector<TokenLogprob> top;  // num_logprobs entries, most probable first
};

// What the rows of a sampling call ask for, uploaded to the device ahead of the call
// (Ops::PlanSample). Valid until the next plan or call of sampling by the same Ops, for the same
// rows.
struct SamplePlan {
  const void* data = nullptr;  // owned by the backend; null: the op uploads the rows itself
};

// Chooses a token per row. Order: biases, penalties (repetition, then frequency and presence),
// exclusions, temperature, top_k, top_p over what top_k left, min_p; the draw runs over the ids in
// rising order. Equal logits rank by rising id. INTERNAL naming the row when a logit is NaN or
// infinite, since a model that overflows must not look like an answer; INVALID_ARGUMENT naming the
// row when it excludes every token.
struct SampleArgs {
  TensorView logits;                // [R, V] f32; used as scratch
  std::span<const SampleRow> rows;  // [R]
  std::span<SampledToken> out;      // [R]
  SamplePlan plan;
};

}  // namespace tandem
