#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "base/kv_shape.h"
#include "kernels/op_args.h"

namespace tandem {

// The size limit of an extent (one layer of one block): a wire frame carries a whole extent
// (docs/kv_wire_format.md).
inline constexpr int64_t kMaxExtentBytes = 64 << 20;

// The limits of a layout: far above the values of any model, yet low enough that no product of them
// overflows.
inline constexpr int32_t kMaxKvLayers = 1024;
inline constexpr int32_t kMaxBlockTokens = 256;  // the limit of the attention kernels

// The order of KV in memory, on the wire and in every tier. No other code knows it.
//
//   pool[layer][block][K|V][kv_head][token][row]
//
// A row is [head_dim] numbers or, for a quantised type, the integers and scales that base/kv_row.h
// defines. Layouts and pools both take its size from there.
//
// A block holds `block_tokens` tokens of one sequence. Its part for one layer, K then V, is one
// contiguous extent of ExtentBytes(): the unit of transfer and of copy. A block id names the same
// position in every layer.
struct KvLayout {
  int32_t num_layers = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t block_tokens = 16;
  DType dtype = DType::kBF16;  // f32 | f16 | bf16 | f8e4m3 (with scale 1) | k8v8 | k6v5 | k4v3

  // INVALID_ARGUMENT naming the field: block_tokens is a power of two from 8 to 256, head_dim a
  // multiple of 8 up to 256, for quantised types a multiple of 64, the other fields are positive
  // and bounded, and an extent has at most kMaxExtentBytes.
  absl::Status Validate() const;

  // The properties in which two workers must agree before KV goes from one to the other; the block
  // size is none of them.
  KvShape shape() const { return {num_layers, num_kv_heads, head_dim, Name(dtype)}; }

  int64_t ExtentBytes() const;  // one layer of one block
  int64_t BlockBytes() const;   // all layers of one block
  int64_t BytesPerToken() const;
  int32_t BlocksFor(int64_t num_tokens) const;

  // A hash of all fields of the layout and of `model_fingerprint` (weights and config). It is equal
  // on two workers only when one can decode from the KV of the other.
  uint64_t Fingerprint(uint64_t model_fingerprint) const;

  KvPoolView PoolView(std::byte* data, int32_t num_blocks) const;

  friend bool operator==(const KvLayout&, const KvLayout&) = default;
};

}  // namespace tandem
