#pragma once

#include <cstdint>

#include "base/dtype.h"

// The floating-point types of tensors and KV, in float64 and in the plainest words.

namespace tandem::reference {

// Element `index` of an array of `dtype`, and the nearest value (ties to even) that it can hold.
double Load(DType dtype, const void* data, int64_t index);
void Store(DType dtype, double value, void* data, int64_t index);
double Rounded(DType dtype, double value);

}  // namespace tandem::reference
