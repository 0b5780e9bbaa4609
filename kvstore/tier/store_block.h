#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kvstore/codec/kv_codec.h"
#include "kvstore/kv_layout.h"

namespace tandem {

// The store block: KV of up to 128 tokens (or of one block, if that has more) as every tier below
// the device keeps it (bytes: docs/kv_store_block.md). A header, then one slice per layer: the
// extents of its blocks in order, each K then V as in the pool and on the wire. Header and slices
// begin at multiples of 4 KiB. Checksums are XXH3-64 (base/hash.h), as on the wire: they find
// accidents, not attackers.

inline constexpr int64_t kStoreBlockTokens = 128;
inline constexpr size_t kStoreAlignment = 4096;
inline constexpr uint32_t kStoreBlockMagic = 0x31534454;  // "TDS1" in memory order
inline constexpr uint16_t kStoreBlockVersion = 1;

struct StoreBlockHeader {
  CodecId codec = CodecId::kRaw;
  uint64_t layout_fingerprint = 0;
  uint64_t chained_hash = 0;  // the last block's; 0 in the KV of swapped sequences
  uint32_t tokens = 0;
  std::vector<uint64_t> checksums;  // per layer, over the part of the slice that `tokens` fill

  friend bool operator==(const StoreBlockHeader&, const StoreBlockHeader&) = default;
};

// Rounds `bytes` up to a multiple of kStoreAlignment.
size_t RoundUpForStore(size_t bytes);
size_t StoreHeaderBytes(int32_t num_layers);
// Writes `header` to `out`, which must have StoreHeaderBytes(checksums.size()) bytes.
void EncodeStoreBlockHeader(const StoreBlockHeader& header, std::span<std::byte> out);
// Parses the header at the beginning of `bytes`. DATA_LOSS when there is none or its hash is wrong,
// FAILED_PRECONDITION for another version, INVALID_ARGUMENT for a field that is out of range.
absl::StatusOr<StoreBlockHeader> ParseStoreBlockHeader(std::span<const std::byte> bytes);

// The offsets within store blocks of one KV layout.
class StoreBlockShape {
 public:
  explicit StoreBlockShape(const KvLayout& layout);
  // The shape of a store block with as many blocks as fit raw into `bytes`, at most those of a
  // whole store block; it has none when not even one fits.
  static StoreBlockShape Fitting(const KvLayout& layout, size_t bytes);

  int32_t num_layers() const { return num_layers_; }
  // The number of pool blocks in one store block.
  int32_t num_blocks() const { return num_blocks_; }
  int64_t TokensOf(int32_t num_blocks) const { return int64_t{num_blocks} * block_tokens_; }
  size_t total_bytes() const { return slices_at_ + num_layers_ * slice_bytes_; }
  std::span<std::byte> Extent(std::span<std::byte> slab, int32_t layer, int32_t index) const;
  // The first `num_blocks` extents of a layer.
  std::span<const std::byte> Slice(std::span<const std::byte> slab, int32_t layer,
                                   int32_t num_blocks) const;

 private:
  StoreBlockShape(const KvLayout& layout, int32_t num_blocks);

  int32_t num_layers_;
  int32_t block_tokens_;
  int32_t num_blocks_;
  size_t extent_bytes_;
  size_t slices_at_;
  size_t slice_bytes_;
};

// The identity that a store block must have in its header.
struct StoreBlockName {
  uint64_t layout_fingerprint = 0;
  uint64_t chained_hash = 0;
  int32_t num_blocks = 0;
};

// DATA_LOSS unless `header` is that of a store block that was sealed under `name` with this codec.
absl::Status CheckStoreBlock(const StoreBlockShape& shape, const StoreBlockName& name,
                             CodecId codec, const StoreBlockHeader& header);
// Computes the checksums of the raw content of `slab` and writes its header.
void SealStoreBlock(const StoreBlockShape& shape, const StoreBlockName& name,
                    std::span<std::byte> slab);
// DATA_LOSS unless `slab` was sealed raw under `name` and is unchanged.
absl::Status VerifyStoreBlock(const StoreBlockShape& shape, const StoreBlockName& name,
                              std::span<const std::byte> slab);

}  // namespace tandem
