#pragma once

#include "absl/status/status.h"
#include "bench/cuda_bench.h"

// The parts of the table, each a file. What an op is to take is in docs/performance.md, with where
// the numbers come from.
namespace tandem {

// What the device can do at best, which the rows of all others are shares of, and what a launch
// costs. GEMM is left out where the library is not there.
absl::Status MeasureCeilings(CudaBench& bench);

absl::Status DecodeSection(CudaBench& bench);
absl::Status PrefillSection(CudaBench& bench);
// Blocks between places, and K and V into blocks.
absl::Status MovementSection(CudaBench& bench);
absl::Status SmallOpsSection(CudaBench& bench);
absl::Status GemmSection(CudaBench& bench);
absl::Status SamplingSection(CudaBench& bench);

}  // namespace tandem
