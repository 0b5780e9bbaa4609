#pragma once

#include "absl/status/status.h"
#include "base/status.h"
#include "kernels/op_args.h"

namespace tandem::cuda {

// INVALID_ARGUMENT for a pool of a type that no kernel of the CUDA backend computes over.
inline absl::Status CheckKvType(const KvPoolView& pool) {
  if (!IsQuantisedKv(pool.dtype)) return absl::OkStatus();
  return InvalidArgument(
      "pool is of {}, which GPUs do not compute over: use bf16, f16, f8e4m3 or f32",
      Name(pool.dtype));
}

}  // namespace tandem::cuda
