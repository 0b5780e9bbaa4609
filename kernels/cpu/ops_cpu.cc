#include "kernels/cpu/ops_cpu.h"

#include "base/status.h"
#include "kernels/cpu/panel.h"

namespace tandem::cpu {

int64_t CpuOps::PackedBytes(WeightFormat format, int64_t n, int64_t k) const {
  return cpu::PackedBytes(format, n, k);
}

absl::Status CpuOps::DoRopeStoreKv(Stream& stream, const RopeArgs& rope, const StoreKvArgs& store) {
  RETURN_IF_ERROR(DoRope(stream, rope));
  return DoStoreKv(stream, store);
}

// Planning costs next to nothing beside a layer, so that every call plans by itself.
absl::StatusOr<AttentionPlan> CpuOps::DoPlanPrefill(const AttentionArgs&, StepStaging&) {
  return AttentionPlan();
}

absl::StatusOr<AttentionPlan> CpuOps::DoPlanDecode(Stream&, const AttentionArgs&) {
  return AttentionPlan();
}

}  // namespace tandem::cpu
