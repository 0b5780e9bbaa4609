#pragma once

#include <array>
#include <cstdint>

namespace tandem {

// Philox4x32-10: a pure function from (key, counter) to 128 random bits, so that the draw for one
// (seed, position) is the same on every worker, in every batch, after every resume (promise P2 of
// docs/architecture.md).
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
std::array<uint32_t, 4> Philox4x32(uint64_t key, uint64_t counter_low, uint64_t counter_high);

// Uniform in [0, 1) with 53 bits, for the token at `position` of a request with `seed`.
double UniformAt(uint64_t seed, uint64_t position);

}  // namespace tandem
