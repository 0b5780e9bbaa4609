#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "kernels/op_args.h"

namespace tandem {

// No extent is larger: a frame carries one extent whole (docs/kv_wire_format.md).
inline constexpr int64_t kMaxExtentBytes = 64 << 20;

// How KV lies in memory, on the wire and in every tier: the one place that knows.
//
//   pool[layer][block][K|V][kv_head][token][head_dim]
//
// A block holds `block_tokens` tokens of one sequence. Its part for one layer, K then V, is one
// contiguous extent of ExtentBytes(): the unit of transfer and of copy. A block id names the same
// place in every layer.
struct KvLayout {
  int32_t num_layers = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t block_tokens = 16;
  DType dtype = DType::kBF16;  // f32 | f16 | bf16 | f8e4m3, its scales 1: what is stored is K and V

  // INVALID_ARGUMENT naming the field: block_tokens is a power of two from 8 to 256, head_dim a
  // multiple of 8 up to 256, the others are positive and bounded, an extent has at most
  // kMaxExtentBytes.
  absl::Status Validate() const;

  int64_t ExtentBytes() const;  // one layer of one block
  int64_t BlockBytes() const;   // all layers of one block
  int64_t BytesPerToken() const;
  int32_t BlocksFor(int64_t num_tokens) const;

  // Equal on two workers only when KV of one can be decoded from by the other: the fields above
  // and `model_fingerprint` (the weights and the config they were computed with).
  uint64_t Fingerprint(uint64_t model_fingerprint) const;

  KvPoolView PoolView(std::byte* data, int32_t num_blocks) const;

  friend bool operator==(const KvLayout&, const KvLayout&) = default;
};

}  // namespace tandem
