#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kvstore/codec/kv_codec.h"
#include "kvstore/kv_layout.h"
#include "kvstore/tier/store_block.h"

namespace tandem {

// Seals and opens store blocks whose extents are encoded losslessly, so that the same memory keeps more
// of them. A slab has room for what KV usually takes and a little more; a store block that takes more is
// not kept. Neither are the first ones, of whose KV the codec's tables are made.
//
// Threads: Seal on one, Open on another, counts on any.
class StoreEncoder {
 public:
  struct Counts {
    int64_t raw_bytes = 0;     // size of the sealed KV before it was encoded
    int64_t stored_bytes = 0;  // size of the sealed store blocks
    int64_t unfit_blocks = 0;  // blocks of the pool in store blocks that were not kept
  };

  // INVALID_ARGUMENT for a quantised KV type, or where the extents of the layout are too small to
  // be encoded one by one, or its blocks too large for one of them to lie raw in a slab.
  static absl::StatusOr<std::unique_ptr<StoreEncoder>> Create(const KvLayout& layout,
                                                              CodecId codec);

  // The size of the slabs that Seal writes to.
  size_t slab_bytes() const { return slab_bytes_; }

  // Encodes the first `name.num_blocks` extents of each layer in `raw`, which lie as in a raw store
  // block, into `slab`. RESOURCE_EXHAUSTED when they do not fit, FAILED_PRECONDITION while there
  // are no tables.
  absl::Status Seal(const StoreBlockName& name, std::span<const std::byte> raw,
                    std::span<std::byte> slab);
  // Verifies `slab` and decodes its extents to where they lie in a raw store block. DATA_LOSS
  // unless the slab was sealed under `name` and is unchanged.
  absl::Status Open(const StoreBlockName& name, std::span<const std::byte> slab,
                    std::span<std::byte> raw) const;

  Counts counts() const;

 private:
  StoreEncoder(const KvLayout& layout, CodecId codec);

  absl::Status Encode(const KvCodec& codec, const StoreBlockName& name,
                      std::span<const std::byte> raw, std::span<std::byte> slab);
  absl::Status Calibrate(const StoreBlockName& name, std::span<const std::byte> raw);
  std::shared_ptr<const KvCodec> codec() const;

  const CodecId id_;
  const ExtentShape extent_;
  const StoreBlockShape shape_;
  const size_t slab_bytes_;

  // Makes the codec's tables from the first store blocks; empty once there are tables. Used only on
  // the thread of Seal.
  std::optional<CodecCalibrator> calibrator_;
  int64_t calibrated_tokens_ = 0;

  mutable absl::Mutex mutex_;
  std::shared_ptr<const KvCodec> codec_ ABSL_GUARDED_BY(mutex_);  // null: no tables yet
  std::atomic<int64_t> raw_bytes_ = 0;
  std::atomic<int64_t> stored_bytes_ = 0;
  std::atomic<int64_t> unfit_blocks_ = 0;
};

}  // namespace tandem
