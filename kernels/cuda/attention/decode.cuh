#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention/tile.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/split_pieces.h"
#include "kernels/split_plan.h"

// What decode's three kernels agree on: the planner (plan_splits.cu), attention itself
// (decode_kernel.cuh) and the merge of partial results (combine_splits.cu).

namespace tandem::cuda {

inline constexpr int kDecodeWarps = 4;
inline constexpr int kDecodeThreads = kDecodeWarps * kWarpLanes;
inline constexpr int kRowsPerTile = 16;  // query heads that share a read of K and V
inline constexpr int kChunkTokens = 16;  // keys that a warp takes at a time
inline constexpr int kChunkShift = 4;    // log2(kChunkTokens)
inline constexpr int kMaxStages = 6;
inline constexpr int kMaxBlocksPerSm = 4;
inline constexpr int kMaxDecodeGroup = 128;  // query heads per KV head

// How query heads are divided for decode. A KV head with more query heads than kRowsPerTile counts
// as several pair heads, each with up to kRowsPerTile of them.
struct DecodeHeads {
  int32_t num_kv_heads = 0;
  int32_t group = 0;       // query heads per KV head
  int32_t row_groups = 1;  // pair heads per KV head

  TANDEM_HOST_DEVICE int32_t num_heads() const { return num_kv_heads * group; }
  TANDEM_HOST_DEVICE int32_t rows() const { return group < kRowsPerTile ? group : kRowsPerTile; }
  // FirstHead and RowsOf: the first query head of a pair head, and the number of its query heads.
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

// Where a plan for decode lies in device memory.
struct DecodePlan {
  SplitPart* parts = nullptr;  // [num_parts]
  int64_t* starts = nullptr;   // [num_sequences + 1]: SplitLine::starts
};

inline DecodePlan DecodePlanAt(void* memory, int32_t num_parts) {
  DecodePlan plan;
  plan.parts = static_cast<SplitPart*>(memory);
  plan.starts = reinterpret_cast<int64_t*>(plan.parts + num_parts);
  return plan;
}

// The memory of decode's partial results. Logarithms are to base 2; -inf where a row has seen no
// key.
struct DecodeScratch {
  float* chunk_mass = nullptr;  // [S, Hkv, mass_chunks, G]: log(sum of 2^logit) of 16 keys
  int64_t mass_chunks = 0;      // per sequence; 0: block_mass is not asked for
  float* row_lse = nullptr;     // [S, Hq]: log-sums of pairs of one piece, for block_mass
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
  SplitRule rule;  // its num_kv_heads counts pair heads
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
  float* lse = nullptr;  // null: not wanted
  int64_t lse_stride = 0;
  float* block_mass = nullptr;  // null: not wanted
  int64_t mass_stride = 0;      // from one sequence to the next
  int32_t max_blocks = 0;

  __device__ __forceinline__ SplitLine Line() const {
    return {plan.starts, context_lens, num_sequences};
  }
  // Query and Output: the address of a query row's dimension 0 in q, and of the same row in out.
  __device__ __forceinline__ const unsigned char* Query(int32_t seq, int32_t head) const {
    return q + (seq * q_stride + int64_t{head} * head_dim) * ActivationBytes(act);
  }
  __device__ __forceinline__ unsigned char* Output(int32_t seq, int32_t head) const {
    return out + (seq * out_stride + int64_t{head} * head_dim) * ActivationBytes(act);
  }
};

// Bytes of a thread block's shared memory: the buffer through which the warps merge, which holds Q
// before; the state of their softmax; and per stage of the rings, 16 rows of K and of V for each
// warp.
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
  return fp8 && compute_capability >= 89 ? 3 : 2;  // before, widening f8 takes more registers
}

// How decode runs on a device: what follows from shapes alone.
struct DecodeLaunch {
  int32_t num_parts = 0;  // thread blocks
  int32_t stages = 0;     // 0: the kernel does not run here
  size_t shared_bytes = 0;
};
DecodeLaunch PlanDecodeLaunch(const LaunchTarget& on, const KvPoolView& pool);

using DecodeKernel = void (*)(DecodeParams);

// The kernel for a pool of type `kv`; instantiated in decode_<head_dim>.cu.
template <int kHeadDim>
DecodeKernel SelectDecodeKernel(DType kv);

cudaError_t CombineSplits(const LaunchTarget& on, const DecodeParams& params);

}  // namespace tandem::cuda
