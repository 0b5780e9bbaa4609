#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "kvstore/codec/extent_shape.h"

namespace tandem {

// What the codecs know of the exponents of a model's KV. A channel's exponents lie close to one another,
// and how close is much the same in all channels of a layer, for every prompt. So an exponent is coded by
// its distance below the top of its channel's window, and a distance by its rank among all distances.
class CodecTables {
 public:
  // Distances 1 to 62 can have a rank; 0 and 63 also stand for all that lie beyond.
  static constexpr int32_t kNumDistances = 64;
  // Ranks that a distance can have; all others are kNoRank.
  static constexpr uint8_t kNumRanks = 14;
  static constexpr uint8_t kNoRank = kNumRanks;

  // The tables of K or V of one layer.
  struct Side {
    std::vector<uint8_t> tops;                   // [kv_head][head_dim]
    std::array<uint8_t, kNumDistances> ranks{};  // [distance]
    std::array<uint8_t, 16> distances{};         // [rank]
  };

  CodecTables(const ExtentShape& shape, std::vector<Side> sides);

  // Whether extents of this shape, whatever their number of tokens, are coded with these tables.
  bool Fit(const ExtentShape& shape, int32_t layer) const;
  // side: 0 K, 1 V.
  const Side& Of(int32_t layer, int32_t side) const {
    return sides_[2 * static_cast<size_t>(layer) + static_cast<size_t>(side)];
  }
  // A hash of all of it: frames name the tables that they were made with.
  uint64_t id() const { return id_; }

  // As bytes, for a peer that is to decode what they encode (docs/kv_codecs.md has the bytes).
  std::vector<std::byte> Serialize() const;
  // The tables that `bytes` were made of. INVALID_ARGUMENT unless these are whole and for extents of
  // `shape` in `num_layers` layers. Nothing larger than `bytes` is allocated.
  static absl::StatusOr<CodecTables> Parse(std::span<const std::byte> bytes,
                                           const ExtentShape& shape, int32_t num_layers);
  // The size of what Serialize returns for such tables.
  static size_t SerializedBytes(const ExtentShape& shape, int32_t num_layers);

 private:
  ExtentShape shape_;
  std::vector<Side> sides_;  // [layer][K|V]
  uint64_t id_ = 0;
};

// Counts the exponents of extents, and makes tables of them. Thread-compatible. Takes half a KiB per
// channel.
class CodecCalibrator {
 public:
  // Tables of so many tokens are good enough: more of them make no ratio better by a thousandth.
  static constexpr int64_t kEnoughTokens = 1024;

  // The number of tokens of `shape` does not matter.
  CodecCalibrator(const ExtentShape& shape, int32_t num_layers);

  // `raw` is an extent of the shape with as many tokens as it has bytes for.
  void Add(int32_t layer, std::span<const std::byte> raw);
  CodecTables Build() const;

 private:
  using Counts = std::array<uint16_t, 256>;  // of a channel, by exponent; they end at their maximum

  CodecTables::Side SideOf(std::span<const Counts> channels) const;

  const ExtentShape shape_;
  std::vector<Counts> counts_;  // [layer][K|V][kv_head][head_dim]
};

}  // namespace tandem
