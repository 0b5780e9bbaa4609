#pragma once

#include <span>

#include "absl/status/status.h"
#include "base/thread_pool.h"
#include "kernels/tensor.h"

namespace tandem::cpu {

// See Ops::PackWeight. Sources are read once, front to back; they may be unaligned (a mapped file).
absl::Status PackWeight(ThreadPool& pool, const PackedMatrix& dst,
                        std::span<const TensorView> sources, const TensorView& scales);

}  // namespace tandem::cpu
