#include <vector>

#include "hwy/aligned_allocator.h"
#include "kernels/cpu/attention_plan.h"
#include "kernels/cpu/cpu_ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
#include "hwy/foreach_target.h"
#include "kernels/cpu/attention_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu {
namespace HWY_NAMESPACE {

void AttendBlock(const AttentionArgs& args, const RowBlock& block, float* scratch) {
  BlockAttention(args, block, scratch).Run();
}

void AttendChunks(const AttentionArgs& args, const RowBlock& block, const ChunkRun& run,
                  float* partials, float* scratch) {
  BlockAttention(args, block, scratch).RunChunks(run.begin, run.end, partials);
}

void MergeChunks(const AttentionArgs& args, const RowBlock& block, float* partials,
                 float* scratch) {
  BlockAttention(args, block, scratch).Merge(partials);
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::cpu {
namespace {

HWY_EXPORT(AttendBlock);
HWY_EXPORT(AttendChunks);
HWY_EXPORT(MergeChunks);

// Memory of a thread, kept from call to call; it grows to the largest shape seen.
class Scratch {
 public:
  float* Reserve(size_t floats) {
    if (floats > size_) {
      memory_ = hwy::AllocateAligned<float>(floats);
      size_ = floats;
    }
    return memory_.get();
  }

 private:
  hwy::AlignedFreeUniquePtr<float[]> memory_;
  size_t size_ = 0;
};

float* ThreadScratch(const AttentionShape& shape) {
  thread_local Scratch scratch;
  return scratch.Reserve(shape.ScratchFloats());
}

// The calling thread's plan, reused so that a step allocates nothing.
struct Plan {
  std::vector<RowBlock> blocks;
  std::vector<ChunkRun> runs;
  std::vector<size_t> partial_starts;
  Scratch partials;
};

Plan& ThreadPlan() {
  thread_local Plan plan;
  return plan;
}

void RunBlocks(ThreadPool& pool, const AttentionArgs& args, const std::vector<RowBlock>& blocks) {
  const AttentionShape shape(args);
  const auto attend = &HWY_DYNAMIC_DISPATCH(AttendBlock);
  pool.ParallelFor(static_cast<int64_t>(blocks.size()), [&](int64_t index, int) {
    attend(args, blocks[static_cast<size_t>(index)], ThreadScratch(shape));
  });
}

void RunChunks(ThreadPool& pool, const AttentionArgs& args, Plan& plan) {
  const AttentionShape shape(args);
  plan.partial_starts.clear();
  size_t floats = 0;
  for (const RowBlock& block : plan.blocks) {
    plan.partial_starts.push_back(floats);
    floats += static_cast<size_t>(block.num_chunks() * block.num_rows()) * shape.record;
  }
  float* partials = plan.partials.Reserve(floats);
  const auto attend = &HWY_DYNAMIC_DISPATCH(AttendChunks);
  pool.ParallelFor(static_cast<int64_t>(plan.runs.size()), [&](int64_t index, int) {
    const ChunkRun& run = plan.runs[static_cast<size_t>(index)];
    attend(args, plan.blocks[run.block], run, partials + plan.partial_starts[run.block],
           ThreadScratch(shape));
  });
  const auto merge = &HWY_DYNAMIC_DISPATCH(MergeChunks);
  pool.ParallelFor(static_cast<int64_t>(plan.blocks.size()), [&](int64_t index, int) {
    const auto block = static_cast<size_t>(index);
    merge(args, plan.blocks[block], partials + plan.partial_starts[block], ThreadScratch(shape));
  });
}

}  // namespace

void AttentionPrefill(ThreadPool& pool, const AttentionArgs& args) {
  Plan& plan = ThreadPlan();
  PlanBlocks(args, plan.blocks);
  RunBlocks(pool, args, plan.blocks);
}

void AttentionDecode(ThreadPool& pool, const AttentionArgs& args) {
  Plan& plan = ThreadPlan();
  PlanBlocks(args, plan.blocks);
  PlanChunkRuns(plan.blocks, pool.num_threads(), plan.runs);
  if (plan.runs.empty()) {
    RunBlocks(pool, args, plan.blocks);
  } else {
    RunChunks(pool, args, plan);
  }
}

}  // namespace tandem::cpu
#endif  // HWY_ONCE
