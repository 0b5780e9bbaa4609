#include "kvstore/codec/codec_tables.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/half_scale.h"
#include "base/hash.h"
#include "base/status.h"
#include "kvstore/codec/float_fields.h"

namespace tandem {
namespace {

// How far the most frequent exponent of a channel lies below the top of its window at first. Large
// values are as rare as small ones, but their exponents lie nearer to the most frequent one.
constexpr int32_t kTopAboveMode = 16;
// How often tops and ranks are fitted to one another, and how far a top moves at most each time. On
// KV of SmolLM2-135M this takes mask-rice from 1.497 times smaller to 1.502 times.
constexpr int kRefinements = 4;
constexpr int32_t kMostMove = 3;
constexpr int32_t kMostTop = 255;

// The bits that mask-rice takes for an exponent: two, one more for each pair of ranks that comes
// before the pair of its own, and a byte where the exponent has no rank.
constexpr uint64_t MaskRiceBits(uint8_t rank) {
  return rank < CodecTables::kNoRank ? 2 + rank / 2 : 2 + (CodecTables::kNoRank - 2) / 2 + 8;
}

// "TDT1" and "TDT2" in memory order.
uint32_t MagicOf(CodecTables::Use use) {
  return use == CodecTables::Use::kLossless ? 0x31544454 : 0x32544454;
}

// What serialised tables begin with. The sides follow, each with its tops and the rank of each
// distance; in tables for rounding then centres, spreads, and the two numbers of the whole side.
struct SerializedHeader {
  uint32_t magic = 0;
  uint8_t dtype = 0;
  uint8_t reserved = 0;
  uint16_t num_layers = 0;
  uint16_t num_kv_heads = 0;
  uint16_t head_dim = 0;

  friend bool operator==(const SerializedHeader&, const SerializedHeader&) = default;
};
static_assert(sizeof(SerializedHeader) == 12);

SerializedHeader HeaderOf(const ExtentShape& shape, size_t num_layers, CodecTables::Use use) {
  return {.magic = MagicOf(use),
          .dtype = static_cast<uint8_t>(shape.dtype),
          .num_layers = static_cast<uint16_t>(num_layers),
          .num_kv_heads = static_cast<uint16_t>(shape.num_kv_heads),
          .head_dim = static_cast<uint16_t>(shape.head_dim)};
}

// Fills the distances of a side as the inverse of its ranks. False unless each rank belongs to
// exactly one distance that may have one.
bool Invert(CodecTables::Side& side) {
  int32_t found = 0;
  for (size_t distance = 0; distance < side.ranks.size(); ++distance) {
    const uint8_t rank = side.ranks[distance];
    if (rank == CodecTables::kNoRank) continue;
    const bool may = distance >= 1 && distance + 1 < side.ranks.size();
    if (!may || rank > CodecTables::kNoRank || side.distances[rank] != 0) return false;
    side.distances[rank] = static_cast<uint8_t>(distance);
    ++found;
  }
  return found == CodecTables::kNumRanks;
}

// The value of a float. f8e4m3 has no room for another error and is not rounded, so nothing asks for
// its values.
float ValueOf(F32Fields, uint32_t word) { return std::bit_cast<float>(word); }
float ValueOf(BF16Fields, uint16_t word) { return FloatOfBFloat(word); }
float ValueOf(F16Fields, uint16_t word) {
  if ((word & 0x7c00) == 0x7c00) return std::numeric_limits<float>::infinity();
  const float magnitude = FloatOfHalf(word & 0x7fff);
  return (word & 0x8000) != 0 ? -magnitude : magnitude;
}
float ValueOf(F8E4M3Fields, uint8_t) { return 0; }

// The nearest bf16 that is finite.
uint16_t ToBFloat(double value) {
  constexpr double kMost = 0x1.fep127;
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(std::clamp(value, -kMost, kMost)));
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

bool IsRounded(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

// Whether a codec can round with what was read as centres and spreads.
bool AreUsable(const CodecTables::Side& side) {
  const auto is_usable = [](float value) { return value > 0 && std::isfinite(value); };
  const auto is_finite = [](uint16_t word) { return std::isfinite(FloatOfBFloat(word)); };
  return (side.spread == 0 || is_usable(side.spread)) && is_usable(side.weight) &&
         std::ranges::all_of(side.centres, is_finite) &&
         std::ranges::all_of(side.spreads, [&](uint16_t word) {
           return is_finite(word) && FloatOfBFloat(word) >= 0;
         });
}

// Takes a side from the front of `bytes`, which are long enough. Returns what is left of them.
std::span<const std::byte> TakeSide(std::span<const std::byte> bytes, size_t channels,
                                    CodecTables::Use use, CodecTables::Side& side) {
  const auto take = [&bytes](auto& to) {
    const std::span<std::byte> part = std::as_writable_bytes(std::span(to));
    std::memcpy(part.data(), bytes.data(), part.size());
    bytes = bytes.subspan(part.size());
  };
  side.tops.resize(channels);
  take(side.tops);
  take(side.ranks);
  if (use == CodecTables::Use::kLossless) return bytes;
  std::array<float, 2> numbers;
  side.centres.resize(channels);
  side.spreads.resize(channels);
  take(side.centres);
  take(side.spreads);
  take(numbers);
  side.spread = numbers[0];
  side.weight = numbers[1];
  return bytes;
}

// The multiples of an average layer's step to which all sides are rounded, [layer][K|V]. An error of
// one side changes predictions by its sensitivity times the square of its step. The sum of all such
// changes is smallest, for an equal number of bits in all, where they are equal: so a step goes with
// the inverse root of the sensitivity. The geometric mean of the steps is 1.
std::vector<float> WeightsOf(const KvSensitivity& sensitivity, size_t num_layers) {
  std::vector<float> weights(2 * num_layers, 1);
  if (sensitivity.k.empty()) return weights;
  TANDEM_CHECK(sensitivity.k.size() == num_layers && sensitivity.v.size() == num_layers,
               "sensitivities of a model with other layers");
  double logs = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    logs += std::log((i % 2 == 0 ? sensitivity.k : sensitivity.v)[i / 2]);
  }
  const double mean = logs / static_cast<double>(weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    const double log = std::log((i % 2 == 0 ? sensitivity.k : sensitivity.v)[i / 2]);
    weights[i] = static_cast<float>(std::exp((mean - log) / 2));
  }
  return weights;
}

}  // namespace

CodecTables::CodecTables(const ExtentShape& shape, std::vector<Side> sides)
    : shape_(shape), sides_(std::move(sides)) {
  for (const Side& side : sides_) {
    id_ = Hash64(std::as_bytes(std::span(side.tops)), id_);
    id_ = Hash64(std::as_bytes(std::span(side.ranks)), id_);
  }
  rounding_id_ = id_;
  for (const Side& side : sides_) {
    const std::array numbers = {side.spread, side.weight};
    rounding_id_ = Hash64(std::as_bytes(std::span(side.centres)), rounding_id_);
    rounding_id_ = Hash64(std::as_bytes(std::span(side.spreads)), rounding_id_);
    rounding_id_ = Hash64(std::as_bytes(std::span(numbers)), rounding_id_);
  }
}

bool CodecTables::Fit(const ExtentShape& shape, int32_t layer) const {
  return shape.dtype == shape_.dtype && shape.num_kv_heads == shape_.num_kv_heads &&
         shape.head_dim == shape_.head_dim && layer >= 0 &&
         static_cast<size_t>(layer) < sides_.size() / 2;
}

size_t CodecTables::SerializedBytes(const ExtentShape& shape, int32_t num_layers, Use use) {
  const auto channels = static_cast<size_t>(shape.channels());
  size_t side = channels + kNumDistances;
  if (use == Use::kRounding) side += 2 * channels * sizeof(uint16_t) + 2 * sizeof(float);
  return sizeof(SerializedHeader) + 2 * static_cast<size_t>(num_layers) * side;
}

std::vector<std::byte> CodecTables::Serialize(Use use) const {
  const SerializedHeader header = HeaderOf(shape_, sides_.size() / 2, use);
  std::vector<std::byte> bytes;
  const auto append = [&bytes](std::span<const std::byte> part) {
    bytes.insert(bytes.end(), part.begin(), part.end());
  };
  append(std::as_bytes(std::span(&header, 1)));
  for (const Side& side : sides_) {
    append(std::as_bytes(std::span(side.tops)));
    append(std::as_bytes(std::span(side.ranks)));
    if (use == Use::kLossless) continue;
    const std::array numbers = {side.spread, side.weight};
    append(std::as_bytes(std::span(side.centres)));
    append(std::as_bytes(std::span(side.spreads)));
    append(std::as_bytes(std::span(numbers)));
  }
  return bytes;
}

absl::StatusOr<CodecTables> CodecTables::Parse(std::span<const std::byte> bytes,
                                               const ExtentShape& shape, int32_t num_layers) {
  const size_t for_rounding = SerializedBytes(shape, num_layers, Use::kRounding);
  const Use use = bytes.size() == for_rounding ? Use::kRounding : Use::kLossless;
  SerializedHeader header;
  if (bytes.size() != SerializedBytes(shape, num_layers, use)) {
    return InvalidArgument("tables of a codec in {} bytes: expected {} or {}", bytes.size(),
                           SerializedBytes(shape, num_layers, Use::kLossless), for_rounding);
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header != HeaderOf(shape, static_cast<size_t>(num_layers), use)) {
    return InvalidArgument(
        "tables of a codec with magic {:08x} for {} layers, {} heads of {}, type {}", header.magic,
        header.num_layers, header.num_kv_heads, header.head_dim, header.dtype);
  }
  bytes = bytes.subspan(sizeof(header));
  std::vector<Side> sides(2 * static_cast<size_t>(num_layers));
  for (Side& side : sides) {
    bytes = TakeSide(bytes, static_cast<size_t>(shape.channels()), use, side);
    if (!Invert(side)) {
      return InvalidArgument("tables of a codec: a rank is missing or given twice");
    }
    if (use == Use::kRounding && !AreUsable(side)) {
      return InvalidArgument("tables of a codec: a centre, spread or weight is out of range");
    }
  }
  return CodecTables(shape, std::move(sides));
}

CodecCalibrator::CodecCalibrator(const ExtentShape& shape, int32_t num_layers)
    : shape_(shape),
      counts_(static_cast<size_t>(2 * num_layers * shape.channels())),
      sums_(counts_.size()) {}

void CodecCalibrator::Add(int32_t layer, std::span<const std::byte> raw) {
  const auto channels = static_cast<size_t>(shape_.channels());
  const auto element = static_cast<size_t>(SizeOf(shape_.dtype));
  const size_t tokens = raw.size() / (2 * channels * element);
  TANDEM_CHECK(raw.size() == 2 * channels * element * tokens, "an extent of another shape");
  const auto head_dim = static_cast<size_t>(shape_.head_dim);
  Counts* counts = &counts_[static_cast<size_t>(layer) * 2 * channels];
  Sums* sums = &sums_[static_cast<size_t>(layer) * 2 * channels];
  WithFields(shape_.dtype, [&](auto fields) {
    using Fields = decltype(fields);
    typename Fields::Word word;
    const std::byte* at = raw.data();
    for (size_t head = 0; head < 2 * channels; head += head_dim) {
      for (size_t i = 0; i < tokens * head_dim; ++i, at += sizeof(word)) {
        std::memcpy(&word, at, sizeof(word));
        uint16_t& count = counts[head + i % head_dim][Fields::Exponent(word)];
        if (count < std::numeric_limits<uint16_t>::max()) ++count;
        const double value = ValueOf(fields, word);
        if (!std::isfinite(value)) continue;
        Sums& sum = sums[head + i % head_dim];
        sum.values += value;
        sum.squares += value * value;
        ++sum.count;
      }
    }
  });
}

CodecTables CodecCalibrator::Build(const KvSensitivity& sensitivity) const {
  const auto channels = static_cast<size_t>(shape_.channels());
  const std::vector<float> weights = WeightsOf(sensitivity, counts_.size() / (2 * channels));
  std::vector<CodecTables::Side> sides;
  for (const float weight : weights) {
    const size_t first = sides.size() * channels;
    sides.push_back(SideOf(std::span(counts_).subspan(first, channels)));
    AddSpreads(std::span(sums_).subspan(first, channels), sides.back());
    sides.back().weight = weight;
  }
  return CodecTables(shape_, std::move(sides));
}

void CodecCalibrator::AddSpreads(std::span<const Sums> channels, CodecTables::Side& side) const {
  double squares = 0;
  for (const Sums& sums : channels) {
    const double count = static_cast<double>(std::max<int64_t>(sums.count, 1));
    const double mean = sums.values / count;
    const double variance = std::max(sums.squares / count - mean * mean, 0.0);
    side.centres.push_back(ToBFloat(mean));
    side.spreads.push_back(ToBFloat(std::sqrt(variance)));
    squares += variance;
  }
  if (IsRounded(shape_.dtype)) {
    const double spread = std::sqrt(squares / static_cast<double>(channels.size()));
    side.spread = FloatOfBFloat(ToBFloat(spread));
  }
}

// Tops and ranks depend on one another: the tops begin where each channel's most frequent exponent
// has the same distance in all channels, and are then moved to where the ranks of all channels code
// the channel best.
CodecTables::Side CodecCalibrator::SideOf(std::span<const Counts> channels) const {
  CodecTables::Side side;
  for (const Counts& counts : channels) {
    const auto mode = static_cast<int32_t>(std::ranges::max_element(counts) - counts.begin());
    side.tops.push_back(static_cast<uint8_t>(std::min(mode + kTopAboveMode, kMostTop)));
  }
  RankDistances(channels, side);
  for (int round = 0; round < kRefinements; ++round) {
    for (size_t i = 0; i < channels.size(); ++i) side.tops[i] = BestTop(channels[i], side, i);
    RankDistances(channels, side);
  }
  return side;
}

// The top near that of channel `i` with which mask-rice codes the channel in the fewest bits; the
// present one where no other is better.
uint8_t CodecCalibrator::BestTop(const Counts& counts, const CodecTables::Side& side, size_t i) {
  const int32_t now = side.tops[i];
  int32_t best = now;
  uint64_t fewest = BitsOf(counts, side, now);
  for (int32_t top = std::max(now - kMostMove, 0); top <= std::min(now + kMostMove, kMostTop);
       ++top) {
    const uint64_t bits = BitsOf(counts, side, top);
    if (bits >= fewest) continue;
    best = top;
    fewest = bits;
  }
  return static_cast<uint8_t>(best);
}

// The bits that mask-rice takes for the exponents of a channel.
uint64_t CodecCalibrator::BitsOf(const Counts& counts, const CodecTables::Side& side, int32_t top) {
  uint64_t bits = 0;
  for (int32_t exponent = 0; exponent < std::ssize(counts); ++exponent) {
    const int32_t distance = std::clamp(top - exponent, 0, CodecTables::kNumDistances - 1);
    const uint8_t rank = side.ranks[static_cast<size_t>(distance)];
    bits += counts[static_cast<size_t>(exponent)] * MaskRiceBits(rank);
  }
  return bits;
}

// Ranks the distances by how often all channels have them.
void CodecCalibrator::RankDistances(std::span<const Counts> channels, CodecTables::Side& side) {
  std::array<uint64_t, CodecTables::kNumDistances> frequency{};
  for (size_t i = 0; i < channels.size(); ++i) {
    const int32_t top = side.tops[i];
    for (int32_t distance = 1; distance + 1 < CodecTables::kNumDistances && distance <= top;
         ++distance) {
      frequency[static_cast<size_t>(distance)] += channels[i][static_cast<size_t>(top - distance)];
    }
  }
  // The first and the last distance have no rank.
  std::array<uint8_t, CodecTables::kNumDistances - 2> order;
  std::iota(order.begin(), order.end(), uint8_t{1});
  std::ranges::stable_sort(order,
                           [&](uint8_t a, uint8_t b) { return frequency[a] > frequency[b]; });
  side.ranks.fill(CodecTables::kNoRank);
  for (uint8_t rank = 0; rank < CodecTables::kNumRanks; ++rank) {
    side.ranks[order[rank]] = rank;
    side.distances[rank] = order[rank];
  }
}

}  // namespace tandem
