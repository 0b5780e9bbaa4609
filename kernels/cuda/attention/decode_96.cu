#include "kernels/cuda/attention/decode_kernel.cuh"

namespace tandem::cuda {

template DecodeKernel SelectDecodeKernel<96>(DType kv);

}  // namespace tandem::cuda
