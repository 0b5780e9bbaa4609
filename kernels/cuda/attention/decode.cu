#include "kernels/cuda/attention/decode.cuh"
#include "kernels/cuda/launch.cuh"

namespace tandem::cuda {
namespace {

constexpr size_t kReservedPerBlock = 1 << 10;  // shared memory that CUDA itself takes

bool HasKernel(const KvPoolView& pool) {
  const int32_t dim = pool.head_dim;
  return (dim == 64 || dim == 96 || dim == 128 || dim == 256) && pool.dtype != DType::kF32 &&
         pool.block_tokens >= kChunkTokens;
}

// Whether the rows of q and out and the pool can be read by 16 bytes.
bool IsAligned(const AttentionArgs& args) {
  const auto at = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % kChunkBytes == 0; };
  return at(args.q.data) && at(args.out.data) && at(args.pool.data) && args.q.row_stride % 8 == 0 &&
         args.out.row_stride % 8 == 0;
}

DecodeKernel FindKernel(const KvPoolView& pool) {
  switch (pool.head_dim) {
    case 64:
      return SelectDecodeKernel<64>(pool.dtype);
    case 96:
      return SelectDecodeKernel<96>(pool.dtype);
    case 128:
      return SelectDecodeKernel<128>(pool.dtype);
    default:
      return SelectDecodeKernel<256>(pool.dtype);
  }
}

int64_t WholeFours(int64_t floats) { return (floats + 3) / 4 * 4; }

// The layout of decode's scratch memory, in floats: row_lse and chunk_mass where block_mass is
// asked for, then slots.
struct ScratchLayout {
  int64_t mass_chunks = 0;
  int64_t chunk_mass = 0;  // where chunk_mass begins
  int64_t slots = 0;       // where the slots begin
  int64_t slot_floats = 0;

  ScratchLayout(const DecodeHeads& heads, int32_t head_dim, int64_t num_sequences,
                int64_t mass_tokens) {
    const int64_t num_rows = num_sequences * heads.num_heads();
    slot_floats = int64_t{heads.rows()} * head_dim + WholeFours(heads.rows());
    if (mass_tokens == 0) return;
    mass_chunks = (mass_tokens + kChunkTokens - 1) / kChunkTokens;
    chunk_mass = WholeFours(num_rows);
    slots = chunk_mass + WholeFours(num_rows * mass_chunks);
  }
};

DecodeParams MakeParams(const AttentionArgs& args, const DecodeLaunch& launch, const void* plan,
                        void* scratch) {
  DecodeParams params;
  params.heads = MakeDecodeHeads(static_cast<int32_t>(args.q.shape[1]), args.pool.num_kv_heads);
  params.rule = MakeSplitRule(args.splits, params.heads.num_kv_heads * params.heads.row_groups,
                              launch.num_parts, args.window);
  params.plan = DecodePlanAt(const_cast<void*>(plan), launch.num_parts);
  params.kv = MakePagedKv(args.pool, args.layer);
  params.logit = MakeLogitRule(args);
  params.value_scale = args.pool.v_scale;
  params.head_dim = args.pool.head_dim;
  params.num_sequences = static_cast<int32_t>(args.context_lens.size());
  params.stages = launch.stages;
  params.context_lens = args.context_lens.device();
  params.block_ids = args.block_tables.ids.device();
  params.block_starts = args.block_tables.starts.device();
  params.act = args.q.dtype;
  params.q = static_cast<const unsigned char*>(args.q.data);
  params.q_stride = args.q.row_stride;
  params.out = static_cast<unsigned char*>(args.out.data);
  params.out_stride = args.out.row_stride;
  params.lse = static_cast<float*>(args.lse.data);
  params.lse_stride = args.lse.row_stride;
  params.block_mass = static_cast<float*>(args.block_mass.data);
  params.mass_stride = args.block_mass.row_stride;
  params.max_blocks =
      args.block_mass.present() ? static_cast<int32_t>(args.block_mass.shape[2]) : 0;

  const ScratchLayout layout(params.heads, params.head_dim, params.num_sequences,
                             int64_t{params.max_blocks} * args.pool.block_tokens);
  auto* const memory = static_cast<float*>(scratch);
  params.scratch.mass_chunks = layout.mass_chunks;
  params.scratch.row_lse = memory;
  params.scratch.chunk_mass = memory + layout.chunk_mass;
  params.scratch.slots = memory + layout.slots;
  params.scratch.slot_floats = layout.slot_floats;
  return params;
}

}  // namespace

DecodeLaunch PlanDecodeLaunch(const LaunchTarget& on, const KvPoolView& pool) {
  DecodeLaunch launch;
  if (!HasKernel(pool)) return launch;
  const bool fp8 = pool.dtype == DType::kF8E4M3;
  const size_t fixed = DecodeMergeBytes(pool.head_dim) + kDecodeStateBytes;
  const size_t stage = DecodeStageBytes(pool.head_dim, SizeOf(pool.dtype));
  for (int blocks = DecodeBlocksPerSm(pool.head_dim, fp8, on.compute_capability); blocks > 0;
       --blocks) {
    size_t bytes = on.shared_bytes_per_sm / blocks - kReservedPerBlock;
    if (bytes > on.max_shared_bytes) bytes = on.max_shared_bytes;
    const size_t stages = bytes > fixed ? (bytes - fixed) / stage : 0;
    if (stages < (blocks > 1 ? 2 : 1)) continue;
    launch.stages = stages < kMaxStages ? static_cast<int32_t>(stages) : kMaxStages;
    launch.num_parts = on.num_sms * blocks;
    launch.shared_bytes = fixed + launch.stages * stage;
    return launch;
  }
  return launch;
}

size_t DecodePlanBytes(const LaunchTarget& on, const DecodeShape& shape) {
  const auto num_parts = static_cast<size_t>(on.num_sms) * kMaxBlocksPerSm;
  return num_parts * sizeof(SplitPart) +
         (static_cast<size_t>(shape.num_sequences) + 1) * sizeof(int64_t);
}

size_t DecodeScratchBytes(const LaunchTarget& on, const DecodeShape& shape) {
  const DecodeHeads heads = MakeDecodeHeads(shape.num_heads, shape.num_kv_heads);
  const SplitRule rule = MakeSplitRule(shape.splits, heads.num_kv_heads * heads.row_groups,
                                       on.num_sms * kMaxBlocksPerSm, 0);
  const ScratchLayout layout(heads, shape.head_dim, shape.num_sequences, shape.mass_tokens);
  const int64_t slots = MaxSplitSlots(rule, shape.num_sequences, shape.total_tokens);
  return static_cast<size_t>(layout.slots + slots * layout.slot_floats) * sizeof(float);
}

cudaError_t AttentionDecode(const LaunchTarget& on, const AttentionArgs& args, const void* plan,
                            void* scratch) {
  const DecodeLaunch launch = PlanDecodeLaunch(on, args.pool);
  const int64_t group = args.q.shape[1] / args.pool.num_kv_heads;
  if (launch.stages == 0 || group > kMaxDecodeGroup || !IsAligned(args)) {
    return AttentionReference(on, args);
  }
  const DecodeParams params = MakeParams(args, launch, plan, scratch);
  LaunchShape shape;
  shape.grid = dim3(launch.num_parts);
  shape.block = dim3(kDecodeThreads);
  shape.shared_bytes = launch.shared_bytes;
  shape.after_previous = true;
  const cudaError_t error = Launch(FindKernel(args.pool), shape, on.stream, params);
  if (error != cudaSuccess) return error;
  return CombineSplits(on, params);
}

}  // namespace tandem::cuda
