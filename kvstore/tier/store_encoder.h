#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "kvstore/codec/kv_codec.h"
#include "kvstore/kv_layout.h"
#include "kvstore/tier/store_block.h"

namespace tandem {

// Seals and opens store blocks whose extents are encoded losslessly, so that the same memory keeps more
// of them. A slab has room for what KV usually takes and a little more; a store block that takes more
// is not kept. Neither are the first ones: the codec's tables are made from their KV.
//
// Threads: Seal on one, Open on another; counts on any.
class StoreEncoder {
 public:
  // Blocks that were sealed, and those that were not kept.
  struct Counts {
    int64_t raw_bytes = 0;  // of the KV that was sealed, before and after
    int64_t stored_bytes = 0;
    int64_t unfit_blocks = 0;  // pool blocks of store blocks that were not kept
  };

  // INVALID_ARGUMENT when the codec does not make KV of this type smaller.
  static absl::StatusOr<std::unique_ptr<StoreEncoder>> Create(const KvLayout& layout, CodecId codec);

  size_t slab_bytes() const { return slab_bytes_; }

  // Encodes the extents in `raw`, which has the shape of a raw store block, into `slab` and seals it.
  // RESOURCE_EXHAUSTED when they do not fit, FAILED_PRECONDITION while tables are being made.
  absl::Status Seal(const StoreBlockName& name, std::span<const std::byte> raw,
                    std::span<std::byte> slab);
  // Verifies `slab` and decodes the extents with an index in `wanted` into `raw`. DATA_LOSS unless the
  // slab was sealed under `name` and is unchanged.
  absl::Status Open(const StoreBlockName& name, std::span<const std::byte> slab,
                    std::span<const int32_t> wanted, std::span<std::byte> raw) const;

  Counts counts() const;
};

}  // namespace tandem
