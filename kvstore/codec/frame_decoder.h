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

// Decodes frames of any codec, with the tables that they name. Copies share the tables; a copy that
// was made before tables were added does not have them. Thread-compatible.
class FrameDecoder {
 public:
  // The most sets of tables that are kept: one more drops the set that was added first. A model
  // needs one set for each worker that made its own.
  static constexpr size_t kMostTables = 8;

  // Adds a set of tables, unless one with the same id is there already.
  void AddTables(const std::shared_ptr<const CodecTables>& tables);
  std::vector<uint64_t> table_ids() const;

  // From now on, frames whose KV was rounded (CodecId::kQuantised) are decoded, too.
  void ReadQuantised();

  // Decodes a frame like DecodeFrame (kv_codec.h). FAILED_PRECONDITION when the frame names tables
  // that were not added.
  absl::Status Decode(const ExtentShape& shape, int32_t layer, std::span<const std::byte> frame,
                      std::span<std::byte> raw) const;

 private:
  std::vector<std::shared_ptr<const KvCodec>>
      codecs_;                                // the codecs with tables, for each set of tables
  std::shared_ptr<const KvCodec> quantised_;  // null: quantised frames are refused
};

}  // namespace tandem
