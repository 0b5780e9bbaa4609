#include "kernels/cuda/attention/prefill_kernel.cuh"

namespace tandem::cuda {

cudaError_t PrefillF8(const LaunchTarget& on, const AttentionArgs& args, const PrefillWork& work) {
  return LaunchPrefill<ptx::F16, true>(on, args, work);
}

}  // namespace tandem::cuda
