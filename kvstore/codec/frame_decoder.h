#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
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

  // `steps`: those of the frames of CodecId::kRounded that may come.
  explicit FrameDecoder(std::vector<float> steps = {}) : steps_(std::move(steps)) {}

  // Adds a set of tables, unless it is there already.
  void AddTables(const std::shared_ptr<const CodecTables>& tables);
  // The ids of all tables, and the rounding ids of those that are for rounding.
  std::vector<uint64_t> table_ids() const;

  // From now on, frames whose KV was rounded (CodecId::kRounded) are decoded, too.
  void ReadRounded() { reads_rounded_ = true; }

  // Decodes a frame like DecodeFrame (kv_codec.h). FAILED_PRECONDITION when the frame names tables
  // that were not added.
  absl::Status Decode(const ExtentShape& shape, int32_t layer, std::span<const std::byte> frame,
                      std::span<std::byte> raw) const;

 private:
  struct Known {
    std::shared_ptr<const CodecTables> tables;
    std::vector<std::shared_ptr<const KvCodec>> codecs;
  };

  std::vector<float> steps_;
  std::vector<Known> known_;  // the set that was added first comes first
  bool reads_rounded_ = false;
};

}  // namespace tandem
