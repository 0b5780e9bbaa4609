#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention/prefill_plan.h"
#include "kernels/op_args.h"

// The kernels of the CUDA backend as the host calls them, one .cu file per op. Arguments were
// validated by Ops; every StagedSpan has its device() set; shapes with no rows never get here. A
// launcher queues on `on.stream` and returns what the launch returned. None allocates, copies or
// waits, so that all can be recorded into a graph.

namespace tandem::cuda {

// The stream and the device that a launcher queues kernels on, with the device's limits.
struct LaunchTarget {
  cudaStream_t stream = nullptr;
  int num_sms = 0;
  int compute_capability = 0;   // 90 for 9.0
  size_t max_shared_bytes = 0;  // the most that one thread block may ask for
  size_t shared_bytes_per_sm = 0;
};

// ---- launchers in small_ops.cu, attention/rope.cu, memory/kv_blocks.cu and memory/kv_tokens.cu
cudaError_t Embedding(const LaunchTarget& on, const EmbeddingArgs& args);
cudaError_t RmsNorm(const LaunchTarget& on, const RmsNormArgs& args);
cudaError_t SiluMul(const LaunchTarget& on, const SiluMulArgs& args);
// out[t, :] += bias, for `out` f32 or act.
cudaError_t AddBias(const LaunchTarget& on, const TensorView& out, const TensorView& bias);
// out = x, elementwise between f32, f16 and bf16; both [T, n].
cudaError_t Convert(const LaunchTarget& on, const TensorView& x, const TensorView& out);
cudaError_t Rope(const LaunchTarget& on, const RopeArgs& args);
cudaError_t StoreKv(const LaunchTarget& on, const StoreKvArgs& args);
cudaError_t RopeStoreKv(const LaunchTarget& on, const RopeArgs& rope, const StoreKvArgs& store);
// CopyTokens, GatherBlocks and ScatterBlocks take the lists of their args as arrays on the device:
// `from`, `to` and `items`, with as many entries as in the args.
cudaError_t CopyBlocks(const LaunchTarget& on, const CopyBlocksArgs& args);
cudaError_t CopyTokens(const LaunchTarget& on, const CopyTokensArgs& args, const int32_t* from,
                       const int32_t* to);
cudaError_t GatherBlocks(const LaunchTarget& on, const MoveBlocksArgs& args, const int2* items);
cudaError_t ScatterBlocks(const LaunchTarget& on, const MoveBlocksArgs& args, const int2* items);

// ---- memory/convert_kv.cu: passes the runs as kernel parameters, in as many launches as that
// takes, so that no memory of the device has to hold them.
cudaError_t ConvertKv(const LaunchTarget& on, const ConvertKvArgs& args);

// ---- gemm/skinny_gemm.cu: x * weight^T for few rows of x, where the time is that of reading the
// weights. Each sum runs in an order that depends on k alone.
bool TakesSkinnyGemm(const GemmArgs& args);
cudaError_t SkinnyGemm(const LaunchTarget& on, const GemmArgs& args);

// ---- gemm/coded_weight.cu: quantised weights, which are kept as codes
// Rows to pack into a weight, on the device: floats to quantise, or codes with a scale for each row
// and group of inputs, [rows, ceil(k / 32)].
struct CodedRows {
  TensorView source;
  const float* scales = nullptr;  // null: `source` is floats
  int64_t first_row = 0;          // the place of these rows in the whole weight
  int32_t* bad_row = nullptr;     // set to a row with a value that has no code, where there is one
};
cudaError_t PackCodedRows(const LaunchTarget& on, const PackedMatrix& weight,
                          const CodedRows& rows);
// Writes the weight's rows from first_row on to `out` [rows, k] as floats of out's type.
cudaError_t WidenCodedRows(const LaunchTarget& on, const PackedMatrix& weight, int64_t first_row,
                           const TensorView& out);
// Embedding from a table that is a quantised weight.
cudaError_t CodedEmbedding(const LaunchTarget& on, const EmbeddingArgs& args);

// ---- sampling/sampling.cu
// A row to sample as the kernel reads it. The tokens that the rows name are in one list for all
// rows. A row's part of it has the tokens of its prompt and of its output where there are
// penalties, those that are excluded, those that are allowed, then biases as pairs of a token and
// the bits of a float. Each of these lists ends where the next one begins, the biases at ids_end.
struct DeviceSampleRow {
  float temperature;
  float top_p;
  float min_p;
  float repetition_penalty;
  float presence_penalty;
  float frequency_penalty;
  int32_t top_k;
  int32_t num_logprobs;  // alternatives to report; -1: no log-probabilities at all
  double uniform;        // the draw, in [0, 1): base/rng.h UniformAt(seed, position)
  int32_t prompt_begin;
  int32_t output_begin;
  int32_t excluded_begin;
  int32_t allowed_begin;  // an empty list allows all
  int32_t biases_begin;
  int32_t ids_end;
  int32_t given_token;     // counts as the sampled token; -1: none, sample
  int32_t logprobs_begin;  // where this row's alternatives start in `top`
};
// Values of a token_id that is no token: a logit of the row is NaN or infinite; the row excludes
// every token.
inline constexpr int32_t kRowOverflowed = -1;
inline constexpr int32_t kRowAllExcluded = -2;
struct DeviceSampledToken {
  int32_t token_id;  // or kRowOverflowed or kRowAllExcluded
  float logprob;
};
struct DeviceTokenLogprob {
  int32_t token_id;
  float logprob;
};
struct SampleLaunch {
  float* logits;  // [R, V] with row_stride; unchanged afterwards
  int64_t row_stride;
  int32_t num_rows;
  int32_t vocab;
  const DeviceSampleRow* rows;  // [R]
  const int32_t* token_ids;     // the token lists of all rows, as DeviceSampleRow says
  void* scratch;                // SampleScratchBytes(R, V); zero before the first use, and left so
  DeviceSampledToken* sampled;  // [R]
  DeviceTokenLogprob* top;      // the alternatives of all rows, [sum of num_logprobs]
};
size_t SampleScratchBytes(int32_t num_rows, int32_t vocab);
cudaError_t Sample(const LaunchTarget& on, const SampleLaunch& launch);

// ---- attention/decode.cu (with plan_splits.cu, combine_splits.cu)
// Upper bounds for decode calls. From them follow the sizes of the plan and of the partial results,
// both of which lie in the caller's memory.
struct DecodeShape {
  int32_t num_sequences = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int64_t total_tokens = 0;  // contexts of all sequences together, at most
  int64_t mass_tokens = 0;   // tokens per sequence that block_mass has room for (its max_blocks *
                             // block_tokens); 0 where block_mass is not asked for
  SplitMode splits = SplitMode::kBalanced;
};
size_t DecodePlanBytes(const LaunchTarget& on, const DecodeShape& shape);
size_t DecodeScratchBytes(const LaunchTarget& on, const DecodeShape& shape);
// Plans on the device, from the context lengths in its memory: a recorded graph that holds this
// call plans anew at each replay.
cudaError_t PlanDecode(const LaunchTarget& on, const AttentionArgs& args, void* plan);
cudaError_t AttentionDecode(const LaunchTarget& on, const AttentionArgs& args, const void* plan,
                            void* scratch);

// ---- attention/prefill.cu, prefill_sm90.cu, combine_prefill.cu
// Upper bounds for prefill calls. From them follow the sizes of the plan's tiles and of the partial
// results, both of which lie in the caller's memory.
struct PrefillShape {
  int64_t num_tokens = 0;
  int32_t num_sequences = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  SplitMode splits = SplitMode::kBalanced;
};
size_t PrefillPlanBytes(const LaunchTarget& on, const PrefillShape& shape);
size_t PrefillScratchBytes(const LaunchTarget& on, const PrefillShape& shape);
// The tile sizes of the kernel that serves `args`, for PlanPrefillTiles (attention/prefill_plan.h).
PrefillTiling TilingOfPrefill(const LaunchTarget& on, const AttentionArgs& args);
// The number of floats in one partial result of the prefill kernel that serves `args`.
size_t PrefillPartialFloats(const LaunchTarget& on, const AttentionArgs& args);

// The tiles as PlanPrefillTiles made and ordered them, on the device.
struct PrefillWork {
  const PrefillTile* tiles;  // [num_tiles]
  int32_t num_tiles;
  float* partials;  // num_partials * PrefillPartialFloats; null when there are none
  int32_t num_partials;
};
cudaError_t AttentionPrefill(const LaunchTarget& on, const AttentionArgs& args,
                             const PrefillWork& work);
// Whether the tensor-core kernels serve these arguments; otherwise AttentionReference does.
bool TakesTensorCores(const LaunchTarget& on, const AttentionArgs& args);

// ---- attention/reference.cu: any dtype, head_dim and block size; plain and slow. Serves the shapes
// that the fast kernels were not compiled for, and tests.
cudaError_t AttentionReference(const LaunchTarget& on, const AttentionArgs& args);
// ---- attention/column_mass.cu
cudaError_t ColumnMass(const LaunchTarget& on, const ColumnMassArgs& args);

}  // namespace tandem::cuda
