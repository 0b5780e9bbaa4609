#pragma once

#include "base/clock.h"
#include "kernels/cpu/ops_cpu.h"

namespace tandem::cpu {

// How long one core takes for the same matrix product by each CpuCompute.
struct ComputeTimes {
  Duration f32{};
  Duration bf16{};
};

// kBF16 where it takes less time by a margin that one measurement cannot miss or feign, so that all processes of a
// machine choose alike: else kF32.
CpuCompute FasterOf(const ComputeTimes& times);

// The compute that is faster on this processor. kF32 where it has no instruction for pairs of bf16; otherwise it
// is measured, once per process, in a few milliseconds. Thread-safe.
CpuCompute FasterCompute();

}  // namespace tandem::cpu
