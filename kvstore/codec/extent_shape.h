#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace tandem {

// What an extent holds: one layer of up to a block of tokens, [K|V][kv_head][token][head_dim].
struct ExtentShape {
  DType dtype = DType::kBF16;  // f32 | f16 | bf16 | f8e4m3
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;  // a multiple of 8
  int32_t tokens = 0;

  // The number of channels of K in one token; V has as many.
  int32_t channels() const { return num_kv_heads * head_dim; }
  size_t Bytes() const {
    return static_cast<size_t>(2 * int64_t{channels()} * tokens * SizeOf(dtype));
  }
  friend bool operator==(const ExtentShape&, const ExtentShape&) = default;
};

}  // namespace tandem
