#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kvstore/codec/codec_tables.h"
#include "kvstore/codec/extent_shape.h"
#include "kvstore/codec/kv_codec.h"

namespace tandem {

// Decodes frames of any codec, with the tables that they name. A value: copies share the tables, and one
// that was copied before tables were added does not have them. Thread-compatible.
class FrameDecoder {
 public:
  // Tables beyond these drop the ones that were added first. A model needs one set for each worker that
  // made its own.
  static constexpr size_t kMostTables = 8;

  // Does nothing for tables that it has.
  void AddTables(const std::shared_ptr<const CodecTables>& tables);
  std::vector<uint64_t> table_ids() const;

  // From now on frames are decoded whose KV was rounded, too.
  void ReadQuantised();

  // As DecodeFrame of kv_codec.h. FAILED_PRECONDITION for tables that it does not have.
  absl::Status Decode(const ExtentShape& shape, int32_t layer, std::span<const std::byte> frame,
                      std::span<std::byte> raw) const;

 private:
  std::vector<std::shared_ptr<const KvCodec>>
      codecs_;                                // one after the other for each set of tables
  std::shared_ptr<const KvCodec> quantised_;  // null: such frames are refused
};

}  // namespace tandem
