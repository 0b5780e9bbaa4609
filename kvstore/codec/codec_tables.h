#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "kvstore/codec/extent_shape.h"
#include "kvstore/codec/kv_sensitivity.h"

namespace tandem {

// What the codecs know of a model's KV. A channel's exponents lie close to one another, and how close
// is much the same in all channels of a layer, for every prompt. So a lossless codec codes an
// exponent by its distance below the top of its channel's window, and a distance by its rank among
// all distances. A codec that rounds codes how far a value lies from the centre of its channel.
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
    // What follows is for codecs that round, and may be missing: then centres and spreads are empty.
    // Mean and standard deviation of each channel, [kv_head][head_dim]; as bf16, because that is how
    // they are serialised.
    std::vector<uint16_t> centres;
    std::vector<uint16_t> spreads;
    float spread = 0;  // root of the mean square of all spreads
    // The step to which this side is rounded, as a multiple of the step of an average layer: below 1
    // where predictions depend on the KV more than in an average layer.
    float weight = 1;
  };

  CodecTables(const ExtentShape& shape, std::vector<Side> sides);

  // What they are for; the number of tokens means nothing.
  const ExtentShape& shape() const { return shape_; }
  int32_t num_layers() const { return static_cast<int32_t>(sides_.size() / 2); }
  // Whether extents of this shape, whatever their number of tokens, can be coded with these tables.
  bool Fit(const ExtentShape& shape, int32_t layer) const;
  // The tables of one layer and side; `side` is 0 for K, 1 for V.
  const Side& Of(int32_t layer, int32_t side) const {
    return sides_[2 * static_cast<size_t>(layer) + static_cast<size_t>(side)];
  }
  // A hash of what lossless codecs use: their frames name the tables that they were made with.
  uint64_t id() const { return id_; }
  // Whether codecs can round with the tables, and a hash of all of them.
  bool for_rounding() const { return !sides_.empty() && !sides_.front().centres.empty(); }
  uint64_t rounding_id() const { return rounding_id_; }

  // Who the serialised tables are for: peers that decode frames of lossless codecs need less than
  // those that decode rounded ones.
  enum class Use : uint8_t { kLossless, kRounding };
  // The tables as bytes, for a peer that is to decode frames made with them (docs/kv_codecs.md has
  // the bytes).
  std::vector<std::byte> Serialize(Use use) const;
  // Reads the tables that Serialize wrote as `bytes`. INVALID_ARGUMENT unless they are whole and
  // for extents of `shape` in `num_layers` layers. Nothing larger than `bytes` is allocated.
  static absl::StatusOr<CodecTables> Parse(std::span<const std::byte> bytes,
                                           const ExtentShape& shape, int32_t num_layers);
  // The size of what Serialize returns for tables of extents of `shape` in `num_layers` layers.
  static size_t SerializedBytes(const ExtentShape& shape, int32_t num_layers, Use use);

 private:
  ExtentShape shape_;
  std::vector<Side> sides_;  // [layer][K|V]
  uint64_t id_ = 0;
  uint64_t rounding_id_ = 0;
};

inline float FloatOfBFloat(uint16_t word) { return std::bit_cast<float>(uint32_t{word} << 16); }

// Counts the exponents of extents and adds up their values, and makes tables of both.
// Thread-compatible. Takes half a KiB per channel.
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
  using Counts = std::array<uint16_t, 256>;  // values of a channel per exponent, saturating
  struct Sums {
    double values = 0;
    double squares = 0;
    int64_t count = 0;  // number of finite values
  };

  CodecTables::Side SideOf(std::span<const Counts> channels) const;
  static uint8_t BestTop(const Counts& counts, const CodecTables::Side& side, size_t i);
  static uint64_t BitsOf(const Counts& counts, const CodecTables::Side& side, int32_t top);
  static void RankDistances(std::span<const Counts> channels, CodecTables::Side& side);
  void AddSpreads(std::span<const Sums> channels, CodecTables::Side& side) const;

  const ExtentShape shape_;
  std::vector<Counts> counts_;  // [layer][K|V][kv_head][head_dim]
  std::vector<Sums> sums_;      // likewise
};

}  // namespace tandem
