#include <algorithm>
#include <numeric>

#include "base/status.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/kv_type.h"
#include "kernels/cuda/ops_cuda.h"

// The attention of the CUDA backend: plans, and the memory for partial results.

namespace tandem::cuda {

// Memory for plans and partial results is taken for the reserved limits when these are larger than
// the call: a graph that is recorded with short contexts is replayed with longer ones.
DecodeShape CudaOps::ShapeOf(const AttentionArgs& args) const {
  const int64_t tokens =
      std::accumulate(args.context_lens.begin(), args.context_lens.end(), int64_t{0});
  return {
      .num_sequences = static_cast<int32_t>(args.context_lens.size()),
      .num_heads = static_cast<int32_t>(args.q.shape[1]),
      .num_kv_heads = args.pool.num_kv_heads,
      .head_dim = args.pool.head_dim,
      .total_tokens = std::max(tokens, limits_.max_total_tokens),
      .mass_tokens =
          args.block_mass.present() ? args.block_mass.shape[2] * args.pool.block_tokens : 0,
      .splits = args.splits,
  };
}

// Reserves no memory for block_mass, which few calls ask for: the first that does grows the memory.
absl::Status CudaOps::ReserveAttention(const WorkLimits& limits) {
  const LaunchTarget& on = device_.target();
  const DecodeShape decode = {
      .num_sequences = limits.max_sequences,
      .num_heads = limits.num_heads,
      .num_kv_heads = limits.num_kv_heads,
      .head_dim = limits.head_dim,
      .total_tokens = limits.max_total_tokens,
      .splits = limits.splits,
  };
  for (Scratch* plan : {&decode_plan_, &own_decode_plan_}) {
    RETURN_IF_ERROR(plan->Reserve(DecodePlanBytes(on, decode)));
  }
  RETURN_IF_ERROR(decode_partials_.Reserve(DecodeScratchBytes(on, decode)));

  const PrefillShape prefill = LargestPrefill();
  RETURN_IF_ERROR(own_prefill_tiles_.Reserve(PrefillPlanBytes(on, prefill)));
  RETURN_IF_ERROR(staging_.Reserve(PrefillPlanBytes(on, prefill)));
  return prefill_partials_.Reserve(PrefillScratchBytes(on, prefill));
}

PrefillShape CudaOps::LargestPrefill() const {
  return {.num_tokens = limits_.max_tokens,
          .num_sequences = limits_.max_sequences,
          .num_heads = limits_.num_heads,
          .num_kv_heads = limits_.num_kv_heads,
          .head_dim = limits_.head_dim,
          .splits = limits_.splits};
}

absl::Status CudaOps::QueuePlanDecode(CudaStream& stream, const LaunchTarget& on,
                                      const AttentionArgs& args, Scratch& plan) {
  ASSIGN_OR_RETURN(std::byte* const memory, plan.Get(stream, DecodePlanBytes(on, ShapeOf(args))));
  return ToStatus(cuda::PlanDecode(on, args, memory), "plan_decode");
}

absl::StatusOr<AttentionPlan> CudaOps::DoPlanDecode(Stream& stream, const AttentionArgs& args) {
  RETURN_IF_ERROR(CheckKvType(args.pool));
  if (!TakesTensorCores(device_.target(), args)) return AttentionPlan();
  AttentionArgs a = args;
  RETURN_IF_ERROR(Run(
      stream,
      [&](const LaunchTarget& on) {
        return QueuePlanDecode(static_cast<CudaStream&>(stream), on, a, decode_plan_);
      },
      a.query_starts, a.context_lens));
  return AttentionPlan{decode_plan_.data()};
}

absl::Status CudaOps::QueueDecode(CudaStream& stream, const LaunchTarget& on,
                                  const AttentionArgs& args) {
  if (!TakesTensorCores(on, args)) {
    return ToStatus(AttentionReference(on, args), "attention_decode");
  }
  const void* plan = args.plan.data;
  if (plan == nullptr) {
    RETURN_IF_ERROR(QueuePlanDecode(stream, on, args, own_decode_plan_));
    plan = own_decode_plan_.data();
  }
  ASSIGN_OR_RETURN(std::byte* const partials,
                   decode_partials_.Get(stream, DecodeScratchBytes(on, ShapeOf(args))));
  return ToStatus(cuda::AttentionDecode(on, args, plan, partials), "attention_decode");
}

absl::Status CudaOps::DoAttentionDecode(Stream& stream, const AttentionArgs& args) {
  RETURN_IF_ERROR(CheckKvType(args.pool));
  AttentionArgs a = args;
  return Run(
      stream,
      [&](const LaunchTarget& on) { return QueueDecode(static_cast<CudaStream&>(stream), on, a); },
      a.query_starts, a.context_lens, a.block_tables.ids, a.block_tables.starts);
}

// The plan of a prefill is made here on the host, so it cannot be part of a recording.
PrefillWork CudaOps::CutPrefill(const AttentionArgs& args) {
  PrefillWork work = {};
  work.num_partials = PlanPrefillTiles(args, TilingOfPrefill(device_.target(), args), tiles_);
  work.num_tiles = static_cast<int32_t>(tiles_.size());
  return work;
}

absl::StatusOr<AttentionPlan> CudaOps::DoPlanPrefill(const AttentionArgs& args,
                                                     StepStaging& staging) {
  RETURN_IF_ERROR(CheckKvType(args.pool));
  if (!TakesTensorCores(device_.target(), args)) return AttentionPlan();
  prefill_work_ = CutPrefill(args);
  prefill_work_.tiles = staging.Add(std::span<const PrefillTile>(tiles_)).device();
  return AttentionPlan{&prefill_work_};
}

absl::StatusOr<PrefillWork> CudaOps::QueueOwnTiles(CudaStream& stream, const AttentionArgs& args) {
  PrefillWork work = CutPrefill(args);
  const size_t bytes = CallStaging::RoomFor<PrefillTile>(tiles_.size());
  ASSIGN_OR_RETURN(CallStaging::Call call, staging_.Begin(stream, bytes));
  ASSIGN_OR_RETURN(std::byte* const memory, own_prefill_tiles_.Get(stream, bytes));
  call.Add(std::span<const PrefillTile>(tiles_));
  RETURN_IF_ERROR(call.UploadTo(stream, memory));
  RETURN_IF_ERROR(call.End(stream));
  work.tiles = reinterpret_cast<const PrefillTile*>(memory);
  return work;
}

absl::Status CudaOps::QueuePrefill(CudaStream& stream, const LaunchTarget& on,
                                   const AttentionArgs& args) {
  if (!TakesTensorCores(on, args)) {
    return ToStatus(AttentionReference(on, args), "attention_prefill");
  }
  PrefillWork work = {};
  if (args.plan.data != nullptr) {
    work = *static_cast<const PrefillWork*>(args.plan.data);
  } else {
    ASSIGN_OR_RETURN(work, QueueOwnTiles(stream, args));
  }
  const size_t partial_bytes = PrefillPartialFloats(on, args) * sizeof(float);
  ASSIGN_OR_RETURN(
      std::byte* const partials,
      prefill_partials_.Get(stream, static_cast<size_t>(work.num_partials) * partial_bytes));
  work.partials = reinterpret_cast<float*>(partials);
  return ToStatus(cuda::AttentionPrefill(on, args, work), "attention_prefill");
}

absl::Status CudaOps::DoAttentionPrefill(Stream& stream, const AttentionArgs& args) {
  RETURN_IF_ERROR(CheckKvType(args.pool));
  AttentionArgs a = args;
  return Run(
      stream,
      [&](const LaunchTarget& on) { return QueuePrefill(static_cast<CudaStream&>(stream), on, a); },
      a.query_starts, a.context_lens, a.block_tables.ids, a.block_tables.starts);
}

}  // namespace tandem::cuda
