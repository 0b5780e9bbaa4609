#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/cpu/panel.h"

namespace tandem::cpu {

// Writes one panel of int8 (pack.h) from rows of f32, f16 or bf16, of k values each. Returns the
// first row with a value that is infinite or no number, whose part of `dst` is then undefined;
// kPanelOutputs when there is none. Every target writes the same bytes.
int64_t QuantisePanel(const PanelRows& rows, DType dtype, int64_t k, std::byte* dst);

}  // namespace tandem::cpu
