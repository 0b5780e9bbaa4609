#include "bench/cuda_attention_case.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "base/status.h"
#include "bench/classic_decode.h"
#include "kernels/cuda/attention/prefill_plan.h"
#include "kernels/cuda/device/cuda_status.h"

namespace tandem {
namespace {

constexpr int32_t kCheckedRows = 64;

// The last `count` rows of a tensor.
TensorView LastRows(const TensorView& tensor, int64_t count) {
  TensorView rows = tensor;
  rows.data =
      tensor.Row<std::byte>(0) + (tensor.rows() - count) * tensor.row_stride * SizeOf(tensor.dtype);
  rows.shape[0] = count;
  return rows;
}

template <class T>
absl::StatusOr<StagedSpan<T>> Stage(CudaBench& bench, CaseMemory& memory,
                                    const std::vector<T>& values) {
  ASSIGN_OR_RETURN(const T* device, bench.Upload(memory, std::span<const T>(values)));
  return StagedSpan<T>(std::span<const T>(values), device);
}

}  // namespace

int64_t AttentionShape::total_tokens() const {
  return std::accumulate(contexts.begin(), contexts.end(), int64_t{0});
}

double AttentionShape::KvBytes() const {
  return 2.0 * static_cast<double>(total_tokens()) * num_kv_heads * head_dim *
         static_cast<double>(SizeOf(kv_dtype));
}

int32_t AttentionCase::max_context() const {
  return *std::max_element(shape_.contexts.begin(), shape_.contexts.end());
}

absl::Status AttentionCase::FillHostArrays() {
  for (const int32_t context : shape_.contexts) {
    if (context < shape_.rows) {
      return InvalidArgument("a context of {} with {} rows: it includes them", context,
                             shape_.rows);
    }
    const int32_t blocks = (context + shape_.block_tokens - 1) / shape_.block_tokens;
    query_starts_.push_back(query_starts_.back() + shape_.rows);
    table_starts_.push_back(table_starts_.back() + blocks);
  }
  block_ids_.resize(static_cast<size_t>(table_starts_.back()));
  std::iota(block_ids_.begin(), block_ids_.end(), 0);
  std::shuffle(block_ids_.begin(), block_ids_.end(), std::mt19937(1));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<AttentionCase>> AttentionCase::Create(CudaBench& bench,
                                                                     const AttentionShape& shape) {
  std::unique_ptr<AttentionCase> made(new AttentionCase(bench, shape));
  AttentionCase& c = *made;
  RETURN_IF_ERROR(c.FillHostArrays());
  AttentionArgs& args = c.args_;
  ASSIGN_OR_RETURN(args.query_starts, Stage(bench, c.memory_, c.query_starts_));
  ASSIGN_OR_RETURN(args.context_lens, Stage(bench, c.memory_, c.shape_.contexts));
  ASSIGN_OR_RETURN(args.block_tables.ids, Stage(bench, c.memory_, c.block_ids_));
  ASSIGN_OR_RETURN(args.block_tables.starts, Stage(bench, c.memory_, c.table_starts_));

  args.pool = {.dtype = shape.kv_dtype,
               .num_layers = bench.SetsOf(shape.KvBytes()),
               .num_blocks = static_cast<int32_t>(c.block_ids_.size()),
               .num_kv_heads = shape.num_kv_heads,
               .block_tokens = shape.block_tokens,
               .head_dim = shape.head_dim};
  const int64_t elements = args.pool.ExtentBytes() / SizeOf(shape.kv_dtype);
  ASSIGN_OR_RETURN(const TensorView pool,
                   bench.Normal(c.memory_, shape.kv_dtype,
                                {args.pool.num_layers, args.pool.num_blocks, elements}));
  args.pool.data = static_cast<std::byte*>(pool.data);
  const int64_t rows = c.query_starts_.back();
  const int64_t heads = shape.num_heads;
  const int64_t dim = shape.head_dim;
  ASSIGN_OR_RETURN(args.q, bench.Normal(c.memory_, DType::kBF16, {rows, heads, dim}));
  ASSIGN_OR_RETURN(args.out, bench.Poisoned(c.memory_, DType::kBF16, {rows, heads, dim}));
  args.scale = 1 / std::sqrt(static_cast<float>(dim));
  return made;
}

AttentionArgs AttentionCase::Args(int32_t launch) const {
  AttentionArgs args = args_;
  args.layer = launch % args.pool.num_layers;
  return args;
}

absl::StatusOr<double> AttentionCase::ErrorOf(const CudaVariant& variant) {
  const int64_t per_sequence = std::min(shape_.rows, kCheckedRows);
  if (per_sequence < shape_.rows && shape_.contexts.size() > 1) {
    return InvalidArgument("the error of several sequences of more than {} rows", kCheckedRows);
  }
  const int64_t rows = per_sequence * static_cast<int64_t>(shape_.contexts.size());
  if (!reference_.present()) {
    AttentionArgs args = args_;
    args.q = LastRows(args_.q, rows);
    ASSIGN_OR_RETURN(reference_, bench_.Poisoned(memory_, DType::kBF16,
                                                 {rows, shape_.num_heads, shape_.head_dim}));
    args.out = reference_;
    std::vector<int32_t> starts(shape_.contexts.size() + 1);
    for (size_t i = 0; i < starts.size(); ++i) {
      starts[i] = static_cast<int32_t>(i) * static_cast<int32_t>(per_sequence);
    }
    ASSIGN_OR_RETURN(args.query_starts, Stage(bench_, memory_, starts));
    RETURN_IF_CUDA_ERROR(cuda::AttentionReference(bench_.target(), args), "attention reference");
    RETURN_IF_ERROR(bench_.stream().Synchronize());
  }
  RETURN_IF_ERROR(bench_.Poison(args_.out));
  RETURN_IF_ERROR(variant.queue(0));
  // Against itself all of it: that every element was written.
  RETURN_IF_ERROR(bench_.Error(args_.out, args_.out).status());
  return bench_.Error(LastRows(args_.out, rows), reference_);
}

absl::StatusOr<CudaVariant> DecodeVariant(CudaBench& bench, AttentionCase& attention,
                                          std::string name, BlockMass mass) {
  const AttentionShape& shape = attention.shape();
  const int32_t max_blocks =
      (attention.max_context() + shape.block_tokens - 1) / shape.block_tokens;
  TensorView block_mass;
  if (mass == BlockMass::kOn) {
    ASSIGN_OR_RETURN(block_mass,
                     bench.Poisoned(attention.memory(), DType::kF32,
                                    {std::ssize(shape.contexts), shape.num_kv_heads, max_blocks}));
  }
  const cuda::DecodeShape sizes = {
      .num_sequences = static_cast<int32_t>(shape.contexts.size()),
      .num_heads = shape.num_heads,
      .num_kv_heads = shape.num_kv_heads,
      .head_dim = shape.head_dim,
      .total_tokens = shape.total_tokens(),
      .mass_tokens = mass == BlockMass::kOn ? int64_t{max_blocks} * shape.block_tokens : 0,
  };
  const cuda::LaunchTarget on = bench.target();
  const auto plan_bytes = static_cast<int64_t>(cuda::DecodePlanBytes(on, sizes));
  const auto scratch_bytes = static_cast<int64_t>(cuda::DecodeScratchBytes(on, sizes));
  ASSIGN_OR_RETURN(std::byte * plan, attention.memory().Take(std::max<int64_t>(plan_bytes, 16)));
  ASSIGN_OR_RETURN(std::byte * scratch,
                   attention.memory().Take(std::max<int64_t>(scratch_bytes, 16)));
  AttentionArgs planned = attention.Args(0);
  planned.block_mass = block_mass;
  RETURN_IF_CUDA_ERROR(cuda::PlanDecode(on, planned, plan), "plan of decode attention");
  return CudaVariant{std::move(name), [on, plan, scratch, block_mass, &attention](int32_t launch) {
                       AttentionArgs args = attention.Args(launch);
                       args.block_mass = block_mass;
                       return cuda::ToStatus(cuda::AttentionDecode(on, args, plan, scratch),
                                             "decode attention");
                     }};
}

absl::StatusOr<CudaVariant> PlanVariant(CudaBench& bench, AttentionCase& attention) {
  const AttentionShape& shape = attention.shape();
  const cuda::LaunchTarget on = bench.target();
  const size_t bytes =
      cuda::DecodePlanBytes(on, {.num_sequences = static_cast<int32_t>(shape.contexts.size()),
                                 .num_heads = shape.num_heads,
                                 .num_kv_heads = shape.num_kv_heads,
                                 .head_dim = shape.head_dim,
                                 .total_tokens = shape.total_tokens()});
  ASSIGN_OR_RETURN(std::byte * plan, attention.memory().Take(static_cast<int64_t>(bytes)));
  return CudaVariant{"device", [on, plan, &attention](int32_t launch) {
                       return cuda::ToStatus(cuda::PlanDecode(on, attention.Args(launch), plan),
                                             "plan of decode attention");
                     }};
}

absl::StatusOr<CudaVariant> ClassicVariant(CudaBench& bench, AttentionCase& attention,
                                           std::string name, Partitions partitions) {
  cuda::ClassicDecode call = {.attention = {}, .max_context = attention.max_context()};
  if (partitions == Partitions::k512) {
    const size_t bytes = cuda::ClassicDecodeScratchBytes(attention.Args(0), call.max_context);
    ASSIGN_OR_RETURN(std::byte * scratch, attention.memory().Take(static_cast<int64_t>(bytes)));
    call.scratch = reinterpret_cast<float*>(scratch);
  }
  const cuda::LaunchTarget on = bench.target();
  return CudaVariant{std::move(name), [on, call, &attention](int32_t launch) mutable {
                       call.attention = attention.Args(launch);
                       return cuda::ToStatus(cuda::RunClassicDecode(on, call), "classic decode");
                     }};
}

absl::StatusOr<CudaVariant> PrefillVariant(CudaBench& bench, AttentionCase& attention,
                                           std::string name, const cuda::LaunchTarget& on) {
  const AttentionArgs args = attention.Args(0);
  std::vector<cuda::PrefillTile> tiles;
  const int32_t partials = cuda::PlanPrefillTiles(args, cuda::TilingOfPrefill(on, args), tiles);
  cuda::PrefillWork work = {.tiles = nullptr,
                            .num_tiles = static_cast<int32_t>(tiles.size()),
                            .partials = nullptr,
                            .num_partials = partials};
  ASSIGN_OR_RETURN(work.tiles,
                   bench.Upload(attention.memory(), std::span<const cuda::PrefillTile>(tiles)));
  if (partials > 0) {
    const auto floats = static_cast<int64_t>(cuda::PrefillPartialFloats(on, args)) * partials;
    ASSIGN_OR_RETURN(std::byte * memory,
                     attention.memory().Take(floats * static_cast<int64_t>(sizeof(float))));
    work.partials = reinterpret_cast<float*>(memory);
  }
  return CudaVariant{std::move(name), [on, work, &attention](int32_t launch) {
                       return cuda::ToStatus(
                           cuda::AttentionPrefill(on, attention.Args(launch), work),
                           "prefill attention");
                     }};
}

}  // namespace tandem
