#include "kernels/cuda/attention/decode.cuh"
#include "kernels/cuda/launch.cuh"

namespace tandem::cuda {
namespace {

constexpr int kPlanThreads = 1024;
constexpr int kPlanWarps = kPlanThreads / kWarpLanes;

// The sum of x over the lanes up to and including this one. Warp.
__device__ __forceinline__ int64_t WarpPrefixSum(int64_t x) {
  const int lane = threadIdx.x % kWarpLanes;
#pragma unroll
  for (int distance = 1; distance < kWarpLanes; distance *= 2) {
    const int64_t below = __shfl_up_sync(kAllLanes, x, distance);
    if (lane >= distance) x += below;
  }
  return x;
}

// The sum of x over the threads up to and including this one; `total` becomes the sum over all.
// Block.
__device__ __forceinline__ int64_t BlockPrefixSum(int64_t x, int64_t* warp_sums, int64_t* total) {
  const int lane = threadIdx.x % kWarpLanes;
  const int warp = threadIdx.x / kWarpLanes;
  x = WarpPrefixSum(x);
  if (lane == kWarpLanes - 1) warp_sums[warp] = x;
  __syncthreads();
  if (warp == 0) warp_sums[lane] = WarpPrefixSum(warp_sums[lane]);
  __syncthreads();
  if (warp > 0) x += warp_sums[warp - 1];
  *total = warp_sums[kPlanWarps - 1];
  __syncthreads();  // before warp_sums is written again
  return x;
}

// Plans a decode step: the line of cost (kernels/split_plan.h) by prefix sums, then each thread
// finds its parts on it by binary search, in a copy in shared memory where that has room for one.
__global__ void __launch_bounds__(kPlanThreads)
    PlanSplitsKernel(SplitRule rule, DecodePlan plan, const int32_t* context_lens,
                     int32_t num_sequences, int32_t shared_starts) {
  ptx::GridDependencyLaunch();
  ptx::GridDependencyWait();
  __shared__ int64_t warp_sums[kPlanWarps];
  auto* const copy = ptx::DynamicShared<int64_t>();
  int64_t* const starts = shared_starts > 0 ? copy : plan.starts;
  static_assert(kPlanWarps == kWarpLanes);

  int64_t before = 0;
  for (int32_t first = 0; first < num_sequences; first += kPlanThreads) {
    const int32_t seq = first + static_cast<int32_t>(threadIdx.x);
    const int64_t cost = seq < num_sequences ? SequenceCost(rule, context_lens[seq]) : 0;
    int64_t total;
    const int64_t end = before + BlockPrefixSum(cost, warp_sums, &total);
    if (seq < num_sequences) {
      plan.starts[seq + 1] = end;
      starts[seq + 1] = end;
    }
    before += total;
  }
  if (threadIdx.x == 0) {
    plan.starts[0] = 0;
    starts[0] = 0;
  }
  __syncthreads();

  const SplitLine line = {starts, context_lens, num_sequences};
  for (int32_t part = threadIdx.x; part < rule.num_parts; part += kPlanThreads) {
    plan.parts[part] = MakeSplitPart(rule, line, part);
  }
}

}  // namespace

cudaError_t PlanDecode(const LaunchTarget& on, const AttentionArgs& args, void* plan) {
  const DecodeLaunch launch = PlanDecodeLaunch(on, args.pool);
  if (launch.stages == 0) return cudaSuccess;  // the reference kernel goes without a plan
  const DecodeHeads heads =
      MakeDecodeHeads(static_cast<int32_t>(args.q.shape[1]), args.pool.num_kv_heads);
  const SplitRule rule = MakeSplitRule(args.splits, heads.num_kv_heads * heads.row_groups,
                                       launch.num_parts, args.window);
  const auto num_sequences = static_cast<int32_t>(args.context_lens.size());
  const size_t starts_bytes = (args.context_lens.size() + 1) * sizeof(int64_t);
  const bool fits = starts_bytes <= kSharedBytesWithoutAsking / 2;
  LaunchShape shape;
  shape.grid = dim3(1);
  shape.block = dim3(kPlanThreads);
  shape.shared_bytes = fits ? starts_bytes : 0;
  shape.after_previous = true;
  return Launch(PlanSplitsKernel, shape, on.stream, rule, DecodePlanAt(plan, launch.num_parts),
                args.context_lens.device(), num_sequences, fits ? num_sequences + 1 : 0);
}

}  // namespace tandem::cuda
