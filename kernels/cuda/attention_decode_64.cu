#include "kernels/cuda/attention_decode_kernel.cuh"

namespace tandem::cuda {

template DecodeKernel SelectDecodeKernel<64>(DType kv);

}  // namespace tandem::cuda
