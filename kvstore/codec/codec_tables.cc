#include "kvstore/codec/codec_tables.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/status.h"
#include "kvstore/codec/float_fields.h"

namespace tandem {
namespace {

// How far the most frequent exponent of a channel lies below the top of its window. Large values
// are as rare as small ones, but their exponents lie nearer to the most frequent one.
constexpr int32_t kTopAboveMode = 16;

constexpr uint32_t kMagic = 0x31544454;  // "TDT1" in memory order

// What serialised tables begin with. The sides follow, each with its tops and then the rank of each
// distance.
struct SerializedHeader {
  uint32_t magic = kMagic;
  uint8_t dtype = 0;
  uint8_t reserved = 0;
  uint16_t num_layers = 0;
  uint16_t num_kv_heads = 0;
  uint16_t head_dim = 0;

  friend bool operator==(const SerializedHeader&, const SerializedHeader&) = default;
};
static_assert(sizeof(SerializedHeader) == 12);

SerializedHeader HeaderOf(const ExtentShape& shape, size_t num_layers) {
  return {.dtype = static_cast<uint8_t>(shape.dtype),
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

}  // namespace

CodecTables::CodecTables(const ExtentShape& shape, std::vector<Side> sides)
    : shape_(shape), sides_(std::move(sides)) {
  for (const Side& side : sides_) {
    id_ = Hash64(std::as_bytes(std::span(side.tops)), id_);
    id_ = Hash64(std::as_bytes(std::span(side.ranks)), id_);
  }
}

bool CodecTables::Fit(const ExtentShape& shape, int32_t layer) const {
  return shape.dtype == shape_.dtype && shape.num_kv_heads == shape_.num_kv_heads &&
         shape.head_dim == shape_.head_dim && layer >= 0 &&
         static_cast<size_t>(layer) < sides_.size() / 2;
}

size_t CodecTables::SerializedBytes(const ExtentShape& shape, int32_t num_layers) {
  return sizeof(SerializedHeader) + 2 * static_cast<size_t>(num_layers) *
                                        (static_cast<size_t>(shape.channels()) + kNumDistances);
}

std::vector<std::byte> CodecTables::Serialize() const {
  const SerializedHeader header = HeaderOf(shape_, sides_.size() / 2);
  std::vector<std::byte> bytes;
  const auto append = [&bytes](std::span<const std::byte> part) {
    bytes.insert(bytes.end(), part.begin(), part.end());
  };
  append(std::as_bytes(std::span(&header, 1)));
  for (const Side& side : sides_) {
    append(std::as_bytes(std::span(side.tops)));
    append(std::as_bytes(std::span(side.ranks)));
  }
  return bytes;
}

absl::StatusOr<CodecTables> CodecTables::Parse(std::span<const std::byte> bytes,
                                               const ExtentShape& shape, int32_t num_layers) {
  SerializedHeader header;
  if (bytes.size() != SerializedBytes(shape, num_layers)) {
    return InvalidArgument("tables of a codec in {} bytes: expected {}", bytes.size(),
                           SerializedBytes(shape, num_layers));
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header != HeaderOf(shape, static_cast<size_t>(num_layers))) {
    return InvalidArgument(
        "tables of a codec with magic {:08x} for {} layers, {} heads of {}, type {}", header.magic,
        header.num_layers, header.num_kv_heads, header.head_dim, header.dtype);
  }
  bytes = bytes.subspan(sizeof(header));
  std::vector<Side> sides(2 * static_cast<size_t>(num_layers));
  for (Side& side : sides) {
    side.tops.resize(static_cast<size_t>(shape.channels()));
    std::memcpy(side.tops.data(), bytes.data(), side.tops.size());
    std::memcpy(side.ranks.data(), bytes.data() + side.tops.size(), side.ranks.size());
    bytes = bytes.subspan(side.tops.size() + side.ranks.size());
    if (!Invert(side))
      return InvalidArgument("tables of a codec: a rank is missing or given twice");
  }
  return CodecTables(shape, std::move(sides));
}

CodecCalibrator::CodecCalibrator(const ExtentShape& shape, int32_t num_layers)
    : shape_(shape), counts_(static_cast<size_t>(2 * num_layers * shape.channels())) {}

void CodecCalibrator::Add(int32_t layer, std::span<const std::byte> raw) {
  const auto channels = static_cast<size_t>(shape_.channels());
  const auto element = static_cast<size_t>(SizeOf(shape_.dtype));
  const size_t tokens = raw.size() / (2 * channels * element);
  TANDEM_CHECK(raw.size() == 2 * channels * element * tokens, "an extent of another shape");
  const auto head_dim = static_cast<size_t>(shape_.head_dim);
  Counts* counts = &counts_[static_cast<size_t>(layer) * 2 * channels];
  WithFields(shape_.dtype, [&](auto fields) {
    using Fields = decltype(fields);
    typename Fields::Word word;
    const std::byte* at = raw.data();
    for (size_t head = 0; head < 2 * channels; head += head_dim) {
      for (size_t i = 0; i < tokens * head_dim; ++i, at += sizeof(word)) {
        std::memcpy(&word, at, sizeof(word));
        uint16_t& count = counts[head + i % head_dim][Fields::Exponent(word)];
        if (count < std::numeric_limits<uint16_t>::max()) ++count;
      }
    }
  });
}

CodecTables CodecCalibrator::Build() const {
  const auto channels = static_cast<size_t>(shape_.channels());
  std::vector<CodecTables::Side> sides;
  for (size_t first = 0; first < counts_.size(); first += channels) {
    sides.push_back(SideOf(std::span(counts_).subspan(first, channels)));
  }
  return CodecTables(shape_, std::move(sides));
}

CodecTables::Side CodecCalibrator::SideOf(std::span<const Counts> channels) const {
  CodecTables::Side side;
  std::array<uint64_t, CodecTables::kNumDistances> frequency{};
  for (const Counts& counts : channels) {
    const auto mode = static_cast<int32_t>(std::ranges::max_element(counts) - counts.begin());
    const int32_t top = std::min(mode + kTopAboveMode, 255);
    side.tops.push_back(static_cast<uint8_t>(top));
    for (int32_t distance = 1; distance + 1 < CodecTables::kNumDistances && distance <= top;
         ++distance) {
      frequency[static_cast<size_t>(distance)] += counts[static_cast<size_t>(top - distance)];
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
  return side;
}

}  // namespace tandem
