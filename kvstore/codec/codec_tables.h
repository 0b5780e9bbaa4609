#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "kvstore/codec/extent_shape.h"
#include "kvstore/codec/kv_sensitivity.h"

namespace tandem {

// What the codecs know of the exponents of a model's KV. A channel's exponents lie close to one
// another, and how close is much the same in all channels of a layer, for every prompt. So an
// exponent is coded by its distance below the top of its channel's window, and a distance by its
// rank among all distances.
class CodecTables {
 public:
  // Only distances 1 to 62 can have a rank: 0 and 63 also stand for all exponents above and below
  // the window.
  static constexpr int32_t kNumDistances = 64;
  // The number of ranks, one for each of the most frequent distances; all other distances are
  // kNoRank.
  static constexpr uint8_t kNumRanks = 14;
  static constexpr uint8_t kNoRank = kNumRanks;

  // The tables of K or V of one layer.
  struct Side {
    std::vector<uint8_t> tops;                   // [kv_head][head_dim]
    std::array<uint8_t, kNumDistances> ranks{};  // [distance]
    std::array<uint8_t, 16> distances{};         // [rank]
  };

  CodecTables(const ExtentShape& shape, std::vector<Side> sides);

  // Whether extents of this shape, whatever their number of tokens, can be coded with these tables.
  bool Fit(const ExtentShape& shape, int32_t layer) const;
  // The tables of one layer and side; `side` is 0 for K, 1 for V.
  const Side& Of(int32_t layer, int32_t side) const {
    return sides_[2 * static_cast<size_t>(layer) + static_cast<size_t>(side)];
  }
  // A hash of the tables: frames name the tables that they were made with.
  uint64_t id() const { return id_; }

  // The tables as bytes, for a peer that is to decode frames made with them (docs/kv_codecs.md has
  // the bytes).
  std::vector<std::byte> Serialize() const;
  // Reads the tables that Serialize wrote as `bytes`. INVALID_ARGUMENT unless they are whole and
  // for extents of `shape` in `num_layers` layers. Nothing larger than `bytes` is allocated.
  static absl::StatusOr<CodecTables> Parse(std::span<const std::byte> bytes,
                                           const ExtentShape& shape, int32_t num_layers);
  // The size of what Serialize returns for tables of extents of `shape` in `num_layers` layers.
  static size_t SerializedBytes(const ExtentShape& shape, int32_t num_layers);

 private:
  ExtentShape shape_;
  std::vector<Side> sides_;  // [layer][K|V]
  uint64_t id_ = 0;
};

// Counts the exponents of extents, and makes tables of them. Thread-compatible. Takes half a KiB
// per channel.
class CodecCalibrator {
 public:
  // The number of tokens whose KV makes tables good enough: more tokens improve no compression
  // ratio by a thousandth.
  static constexpr int64_t kEnoughTokens = 1024;

  // The number of tokens of `shape` does not matter.
  CodecCalibrator(const ExtentShape& shape, int32_t num_layers);

  // Counts the exponents of the extent `raw`, which has as many tokens as its size tells.
  void Add(int32_t layer, std::span<const std::byte> raw);
  // Makes the tables. `sensitivity` decides in which layers KV is rounded in finer steps; it is
  // empty, or for as many layers as are counted here.
  CodecTables Build(const KvSensitivity& sensitivity = {}) const;

 private:
  using Counts = std::array<uint16_t, 256>;  // of one channel, by exponent; they saturate

  CodecTables::Side SideOf(std::span<const Counts> channels) const;

  const ExtentShape shape_;
  std::vector<Counts> counts_;  // [layer][K|V][kv_head][head_dim]
};

}  // namespace tandem
