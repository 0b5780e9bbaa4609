#include "kernels/cuda/prefill_tile.cuh"

namespace tandem::cuda {

bool TakesHopperPrefill(const LaunchTarget&, const AttentionArgs&) { return false; }

PrefillTiling HopperTiling(const LaunchTarget&) { return {}; }

cudaError_t HopperPrefill(const LaunchTarget&, const AttentionArgs&, const PrefillWork&) {
  return cudaErrorNotSupported;
}

}  // namespace tandem::cuda
