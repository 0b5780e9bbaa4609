#include "kernels/cpu/processor.h"

#include "base/status.h"
#include "hwy/highway.h"

namespace tandem {

absl::Status CheckProcessor() {
  if ((hwy::SupportedTargets() & HWY_STATIC_TARGET) != 0) return absl::OkStatus();
  return FailedPrecondition(
      "this program was compiled for processors with {}, which this one lacks: build it here, or "
      "for all processors with make build",
      hwy::TargetName(HWY_STATIC_TARGET));
}

bool HasBF16Dots() {
#if HWY_ARCH_X86_64
  static const bool has = __builtin_cpu_supports("avx512bf16") != 0;
  return has;
#else
  return false;
#endif
}

}  // namespace tandem
