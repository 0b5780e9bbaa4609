#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::cpu {

// Writes one row of a quantised pool, as StoreKv does: `x` [head_dim], rounded to `bits`.
void QuantiseRow(const float* x, int32_t head_dim, int32_t bits, std::byte* out);

}  // namespace tandem::cpu
