#include "kernels/cuda/attention/prefill_kernel.cuh"

namespace tandem::cuda {

cudaError_t PrefillF16(const LaunchTarget& on, const AttentionArgs& args, const PrefillWork& work) {
  return LaunchPrefill<ptx::F16, false>(on, args, work);
}

}  // namespace tandem::cuda
