#include <algorithm>
#include <vector>

#include "hwy/aligned_allocator.h"
#include "kernels/cpu/attention_plan.h"
#include "kernels/cpu/block_masses.h"
#include "kernels/cpu/column_mass.h"
#include "kernels/cpu/ops_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
#include "hwy/foreach_target.h"
#include "kernels/cpu/attention_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu {
namespace HWY_NAMESPACE {

void AttendBlock(const AttentionArgs& args, KvProducts products, const RowBlock& block,
                 const BlockMasses& masses, float* scratch) {
  BlockAttention(args, products, block, masses, scratch).Run();
}

void AttendChunks(const AttentionArgs& args, KvProducts products, const RowBlock& block,
                  const BlockMasses& masses, const ChunkRun& run, const BlockMemory& memory) {
  BlockAttention(args, products, block, masses, memory.scratch)
      .RunChunks(run.begin, run.end, memory.partials);
}

void MergeChunks(const AttentionArgs& args, KvProducts products, const RowBlock& block,
                 const BlockMasses& masses, const BlockMemory& memory) {
  BlockAttention(args, products, block, masses, memory.scratch).Merge(memory.partials);
}

void AddColumns(const ColumnMassArgs& args, KvProducts products, const RowBlock& block,
                const Columns& columns, const RowFactors& factors, float* sums, float* scratch) {
  const AttentionArgs& attention = args.attention;
  RowScores rows(attention, products, block, scratch);
  rows.LoadQueries();
  WithStoredType(attention.pool.dtype, products, [&](auto stored) HWY_ATTR {
    rows.ScoreChunk<decltype(stored), KvSide::kKeys>(columns.chunk, {columns.begin, columns.end});
  });
  const int64_t last_token = attention.query_starts[static_cast<size_t>(block.seq) + 1] - 1;
  rows.AddWeights(
      [&](int64_t token, int64_t head) {
        return RowScores::RowWeight{.lse2 = attention.lse.Row<const float>(token)[head] * kLog2E,
                                    .factor = factors.Of(last_token - token)};
      },
      sums);
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
HWY_EXPORT(AddColumns);

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
  ChunkRuns cut;
  std::vector<size_t> partial_starts;
  Scratch partials;
  StepMasses masses;
  Scratch mass_memory;

  BlockMasses MassesOf(const RowBlock& block) const { return masses.Of(block.seq, block.kv_head); }
};

Plan& ThreadPlan() {
  thread_local Plan plan;
  return plan;
}

void RunBlocks(ThreadPool& pool, const AttentionArgs& args, KvProducts products, Plan& plan) {
  SortByCost(plan.blocks);
  const AttentionShape shape(args);
  const auto attend = &HWY_DYNAMIC_DISPATCH(AttendBlock);
  pool.ParallelFor(static_cast<int64_t>(plan.blocks.size()), [&](int64_t index, int) {
    const RowBlock& block = plan.blocks[static_cast<size_t>(index)];
    attend(args, products, block, plan.MassesOf(block), ThreadScratch(shape));
  });
}

void RunChunks(ThreadPool& pool, const AttentionArgs& args, KvProducts products, Plan& plan) {
  const AttentionShape shape(args);
  plan.partial_starts.clear();
  size_t floats = 0;
  for (const RowBlock& block : plan.blocks) {
    plan.partial_starts.push_back(floats);
    floats += static_cast<size_t>(block.num_chunks() * block.num_rows()) * shape.record;
  }
  float* partials = plan.partials.Reserve(floats);
  const auto memory = [&](size_t block) {
    return BlockMemory{partials + plan.partial_starts[block], ThreadScratch(shape)};
  };
  const auto attend = &HWY_DYNAMIC_DISPATCH(AttendChunks);
  pool.ParallelFor(static_cast<int64_t>(plan.cut.part_ends.size()), [&](int64_t index, int) {
    const auto part = static_cast<size_t>(index);
    for (size_t i = part == 0 ? 0 : plan.cut.part_ends[part - 1]; i < plan.cut.part_ends[part];
         ++i) {
      const ChunkRun& run = plan.cut.runs[i];
      const RowBlock& block = plan.blocks[run.block];
      attend(args, products, block, plan.MassesOf(block), run, memory(run.block));
    }
  });
  const auto merge = &HWY_DYNAMIC_DISPATCH(MergeChunks);
  pool.ParallelFor(static_cast<int64_t>(plan.blocks.size()), [&](int64_t index, int) {
    const auto i = static_cast<size_t>(index);
    merge(args, products, plan.blocks[i], plan.MassesOf(plan.blocks[i]), memory(i));
  });
}

// Computes some columns of the masses of a sequence and KV head, over all of its last rows. A
// column's sum runs over the rows in their order, whatever columns beside it are computed with it.
void StoreColumns(const ColumnMassArgs& args, KvProducts products, const RowFactors& factors,
                  int32_t seq, int32_t kv_head, const Columns& columns) {
  const AttentionArgs& attention = args.attention;
  const AttentionShape shape(attention);
  const auto s = static_cast<size_t>(seq);
  const int64_t q_len = attention.query_starts[s + 1] - attention.query_starts[s];
  const int64_t end = q_len * shape.group;
  const auto add = &HWY_DYNAMIC_DISPATCH(AddColumns);
  float sums[kChunkTokens] = {};
  for (int64_t begin = std::max<int64_t>(0, q_len - args.last_rows) * shape.group; begin < end;
       begin += kMaxBlockRows) {
    const RowBlock block =
        MakeRowBlock(attention, seq, kv_head, begin, std::min(end, begin + kMaxBlockRows));
    if (columns.chunk < block.first_chunk || columns.chunk >= block.end_chunk) continue;
    add(args, products, block, columns, factors, sums, ThreadScratch(shape));
  }
  const int64_t max_tokens = args.out.shape[2];
  float* out = args.out.Row<float>(seq) + kv_head * max_tokens;
  const int64_t first = columns.chunk * kChunkTokens;
  std::copy(sums + columns.begin,
            sums + std::min(static_cast<int64_t>(columns.end), max_tokens - first),
            out + first + static_cast<int64_t>(columns.begin));
}

// How many columns a thread takes at a time: whole chunks where these keep all threads busy, and
// fewer where not. For fewer than kMin it would cost too much to load the queries for each.
int64_t ColumnsAtOnce(const ColumnMassArgs& args, int num_threads) {
  constexpr int64_t kMin = 64;
  constexpr int64_t kTasksPerThread = 8;
  const int64_t pairs = args.out.rows() * args.out.shape[1];
  int64_t columns = kChunkTokens;
  while (columns > kMin &&
         pairs * (args.out.shape[2] + columns - 1) / columns < kTasksPerThread * num_threads) {
    columns /= 2;
  }
  return columns;
}

// How KV of the type `stored` is multiplied: only bf16 is ever multiplied in pairs.
KvProducts ProductsOf(CpuCompute compute, DType stored) {
  return compute == CpuCompute::kBF16 && stored == DType::kBF16 ? KvProducts::kPairs
                                                                : KvProducts::kF32;
}

}  // namespace

absl::Status CpuOps::DoAttentionPrefill(Stream&, const AttentionArgs& args) {
  Plan& plan = ThreadPlan();
  plan.masses.Plan(args);
  PlanBlocks(args, plan.blocks);
  RunBlocks(pool_, args, ProductsOf(compute_, args.pool.dtype), plan);
  return absl::OkStatus();
}

absl::Status CpuOps::DoAttentionDecode(Stream&, const AttentionArgs& args) {
  Plan& plan = ThreadPlan();
  plan.masses.SetMemory(plan.mass_memory.Reserve(plan.masses.Plan(args)));
  PlanBlocks(args, plan.blocks);
  PlanChunkRuns(args, plan.blocks, pool_.num_threads(), plan.cut);
  const KvProducts products = ProductsOf(compute_, args.pool.dtype);
  if (plan.cut.runs.empty()) {
    RunBlocks(pool_, args, products, plan);
  } else {
    RunChunks(pool_, args, products, plan);
  }
  if (!args.block_mass.present()) return absl::OkStatus();
  const int64_t num_kv_heads = args.pool.num_kv_heads;
  pool_.ParallelFor(args.block_mass.rows() * num_kv_heads, [&](int64_t pair, int) {
    plan.masses.Fold(args, static_cast<int32_t>(pair / num_kv_heads),
                     static_cast<int32_t>(pair % num_kv_heads));
  });
  return absl::OkStatus();
}

absl::Status CpuOps::DoColumnMass(Stream&, const ColumnMassArgs& args) {
  const RowFactors factors(args);
  const KvProducts products = ProductsOf(compute_, args.attention.pool.dtype);
  const int64_t at_once = ColumnsAtOnce(args, pool_.num_threads());
  const int64_t pieces = (args.out.shape[2] + at_once - 1) / at_once;
  const int64_t num_kv_heads = args.attention.pool.num_kv_heads;
  pool_.ParallelFor(args.out.rows() * num_kv_heads * pieces, [&](int64_t index, int) {
    const int64_t pair = index / pieces;
    const int64_t first = index % pieces * at_once;
    const auto begin = static_cast<size_t>(first % kChunkTokens);
    StoreColumns(args, products, factors, static_cast<int32_t>(pair / num_kv_heads),
                 static_cast<int32_t>(pair % num_kv_heads),
                 {first / kChunkTokens, begin, begin + static_cast<size_t>(at_once)});
  });
  return absl::OkStatus();
}

}  // namespace tandem::cpu
#endif  // HWY_ONCE
