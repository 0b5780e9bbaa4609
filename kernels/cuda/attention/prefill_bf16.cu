#include "kernels/cuda/attention/prefill_kernel.cuh"

namespace tandem::cuda {

cudaError_t PrefillBf16(const LaunchTarget& on, const AttentionArgs& args,
                        const PrefillWork& work) {
  return LaunchPrefill<ptx::Bf16, false>(on, args, work);
}

}  // namespace tandem::cuda
