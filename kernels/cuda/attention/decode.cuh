#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention/tile.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/split_plan.h"

// What decode's three kernels agree on: the planner (plan_splits.cu), attention itself
// (decode_kernel.cuh) and the merge of partial results (combine_splits.cu).

namespace tandem::cuda {

inline constexpr int kDecodeWarps = 4;
inline constexpr int kDecodeThreads = kDecodeWarps * kWarpLanes;
inline constexpr int kRowsPerTile = 16;  // query heads that share a read of K and V
inline constexpr int kChunkTokens = 16;  // keys that a warp takes at a time
inline constexpr int kChunkShift = 4;    // log2 of it
inline constexpr int kMaxStages = 6;
inline constexpr int kMaxBlocksPerSm = 4;
inline constexpr int kMaxDecodeGroup = 128;  // query heads per KV head

// A KV head with more query heads than kRowsPerTile counts as several heads of a pair, each with up
// to kRowsPerTile of them.
struct DecodeHeads {
  int32_t num_kv_heads = 0;
  int32_t group = 0;       // query heads per KV head
  int32_t row_groups = 1;  // that the group is cut into

  TANDEM_HOST_DEVICE int32_t num_heads() const { return num_kv_heads * group; }
  TANDEM_HOST_DEVICE int32_t rows() const { return group < kRowsPerTile ? group : kRowsPerTile; }
  // The first query head of a pair's head, and how many it has.
  TANDEM_HOST_DEVICE int32_t FirstHead(int32_t pair_head) const {
    return pair_head / row_groups * group + pair_head % row_groups * kRowsPerTile;
  }
  TANDEM_HOST_DEVICE int32_t RowsOf(int32_t pair_head) const {
    const int32_t left = group - pair_head % row_groups * kRowsPerTile;
    return left < kRowsPerTile ? left : kRowsPerTile;
  }
};

inline DecodeHeads MakeDecodeHeads(int32_t num_heads, int32_t num_kv_heads) {
  DecodeHeads heads;
  heads.num_kv_heads = num_kv_heads;
  heads.group = num_heads / num_kv_heads;
  heads.row_groups = (heads.group + kRowsPerTile - 1) / kRowsPerTile;
  return heads;
}

// The plan's memory.
struct DecodePlan {
  SplitPart* parts = nullptr;  // [num_parts]
  int64_t* starts = nullptr;   // [num_sequences + 1]: the line of cost
};

inline DecodePlan DecodePlanAt(void* memory, int32_t num_parts) {
  DecodePlan plan;
  plan.parts = static_cast<SplitPart*>(memory);
  plan.starts = reinterpret_cast<int64_t*>(plan.parts + num_parts);
  return plan;
}

// The partial results' memory. Logarithms are to base 2; -inf where a row has seen nothing.
struct DecodeScratch {
  float* chunk_mass = nullptr;  // [S, Hkv, mass_chunks, G]: log(sum of 2^logit) of 16 keys
  int64_t mass_chunks = 0;      // per sequence; 0: block_mass is not asked for
  float* row_lse = nullptr;     // [S, Hq]: of pairs that are one piece, for block_mass
  float* slots = nullptr;       // per slot: [rows, D] outputs, then [rows] log-sums
  int64_t slot_floats = 0;

  // Where the `rows` outputs of a slot begin.
  TANDEM_HOST_DEVICE float* Outputs(int32_t slot) const { return slots + slot * slot_floats; }
  TANDEM_HOST_DEVICE float* LogSums(int32_t slot, int32_t rows, int32_t head_dim) const {
    return Outputs(slot) + int64_t{rows} * head_dim;
  }
};

// The arguments of all kernels of decode.
struct DecodeParams {
  SplitRule rule;  // whose num_kv_heads are the heads of a pair
  DecodeHeads heads;
  DecodePlan plan;
  DecodeScratch scratch;
  PagedKv kv;
  LogitRule logit;
  float value_scale = 1;
  int32_t head_dim = 0;
  int32_t num_sequences = 0;
  int32_t stages = 0;  // of the ring in shared memory
  const int32_t* context_lens = nullptr;
  const int32_t* block_ids = nullptr;
  const int32_t* block_starts = nullptr;
  DType act = DType::kBF16;  // of q and out
  const unsigned char* q = nullptr;
  int64_t q_stride = 0;  // elements from one token to the next
  unsigned char* out = nullptr;
  int64_t out_stride = 0;
  float* lse = nullptr;  // or absent
  int64_t lse_stride = 0;
  float* block_mass = nullptr;  // or absent
  int64_t mass_stride = 0;      // from one sequence to the next
  int32_t max_blocks = 0;

  __device__ __forceinline__ SplitLine Line() const {
    return {plan.starts, context_lens, num_sequences};
  }
  // Dimension 0 of a row of q, in bytes, and of the same row of out.
  __device__ __forceinline__ const unsigned char* Query(int32_t seq, int32_t head) const {
    return q + (seq * q_stride + int64_t{head} * head_dim) * ActivationBytes(act);
  }
  __device__ __forceinline__ unsigned char* Output(int32_t seq, int32_t head) const {
    return out + (seq * out_stride + int64_t{head} * head_dim) * ActivationBytes(act);
  }
};

// Bytes of a block's shared memory: what the warps merge through, and Q before that; the state of
// their softmax; and per stage of the rings, 16 rows of K and of V for each warp.
TANDEM_HOST_DEVICE inline constexpr size_t DecodeMergeBytes(int head_dim) {
  return size_t{kDecodeWarps} * 8 * head_dim * sizeof(float);
}
inline constexpr size_t kDecodeStateBytes = kDecodeWarps * kRowsPerTile * 2 * sizeof(float);
inline size_t DecodeStageBytes(int head_dim, int64_t element_bytes) {
  return size_t{kDecodeWarps} * 2 * kChunkTokens * head_dim * element_bytes;
}

// Thread blocks that a multiprocessor has registers for: several where the tiles are small, since a
// warp then has little in flight.
TANDEM_HOST_DEVICE inline constexpr int DecodeBlocksPerSm(int head_dim, bool fp8,
                                                          int compute_capability) {
  if (head_dim > 128) return fp8 ? 2 : 1;
  if (head_dim == 64) return fp8 ? 4 : 3;
  return fp8 && compute_capability >= 89 ? 3 : 2;  // before, f8 is widened in several registers
}

// How decode runs on a device: what follows from shapes alone.
struct DecodeLaunch {
  int32_t num_parts = 0;  // thread blocks
  int32_t stages = 0;     // 0: not on this device
  size_t shared_bytes = 0;
};
DecodeLaunch PlanDecodeLaunch(const LaunchTarget& on, const KvPoolView& pool);

using DecodeKernel = void (*)(DecodeParams);

// The kernel for K and V of `kv`; instantiated in attention_decode_<head_dim>.cu.
template <int kHeadDim>
DecodeKernel SelectDecodeKernel(DType kv);

cudaError_t CombineSplits(const LaunchTarget& on, const DecodeParams& params);

}  // namespace tandem::cuda
