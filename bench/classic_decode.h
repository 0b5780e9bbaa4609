#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launchers.h"
#include "kernels/op_args.h"

// Paged decode attention as the first serving systems had it, a baseline to measure against: one
// thread block per query head and sequence, so that heads which share K and V each read them; f32
// multiply-adds, all logits in shared memory, one pass over K and a second over V. Long contexts
// may be cut into partitions of 512 tokens, whose results a second kernel adds up. Source: Kwon et
// al., "PagedAttention", 2023, versions 1 and 2; the code is our own.
namespace tandem::cuda {

struct ClassicDecode {
  AttentionArgs attention;  // bf16; head_dim 64 or 128; no window, softcap, lse or mass; staged
  int32_t max_context = 0;  // the longest of the sequences
  // Null: no partitions, and then the logits of the longest context must fit into shared memory.
  // Otherwise ClassicDecodeScratchBytes.
  float* scratch = nullptr;
};

size_t ClassicDecodeScratchBytes(const AttentionArgs& args, int32_t max_context);
cudaError_t RunClassicDecode(const LaunchTarget& on, const ClassicDecode& call);

}  // namespace tandem::cuda
