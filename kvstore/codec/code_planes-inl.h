// Writes and reads the integer codes of a group of channels as masks with one bit per channel.
// Included once per target (Highway's foreach_target).
#if defined(TANDEM_KVSTORE_CODEC_CODE_PLANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KVSTORE_CODEC_CODE_PLANES_INL_H_
#undef TANDEM_KVSTORE_CODEC_CODE_PLANES_INL_H_
#else
#define TANDEM_KVSTORE_CODEC_CODE_PLANES_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kvstore/codec/quantised_layout.h"
#include "kvstore/codec/row_streams.h"
#include "kvstore/codec/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::codec {
namespace HWY_NAMESPACE {

template <size_t kLanes>
inline constexpr uint64_t kAllLanes = ~uint64_t{0} >> (64 - kLanes);

// Replaces signed codes by their zigzag ranks: 0, -1, 1, -2, 2, ... become 0, 1, 2, 3, 4, ...
// CodesOf is the inverse.
HWY_INLINE void ZigzagOf(RowBytes& codes) {
  const ByteTag d;
  const hn::RebindToSigned<ByteTag> di;
  for (size_t i = 0; i < kRowLanes; i += hn::Lanes(d)) {
    const auto code = hn::BitCast(di, hn::Load(d, codes.at + i));
    const auto negative = hn::VecFromMask(di, hn::Lt(code, hn::Zero(di)));
    hn::Store(hn::BitCast(d, hn::Xor(hn::Add(code, code), negative)), d, codes.at + i);
  }
}
HWY_INLINE void CodesOf(RowBytes& ranks) {
  const ByteTag d;
  const auto one = hn::Set(d, uint8_t{1});
  for (size_t i = 0; i < kRowLanes; i += hn::Lanes(d)) {
    const auto rank = hn::Load(d, ranks.at + i);
    const auto negative = hn::Sub(hn::Zero(d), hn::And(rank, one));
    hn::Store(hn::Xor(hn::ShiftRight<1>(rank), negative), d, ranks.at + i);
  }
}

// For each number, how many ranks of one side (K or V) have a rest of at least that number above
// the fewest possible low bits, bits - 3. The sizes of all ways to write the ranks follow from
// these counts.
struct RankCounts {
  size_t lanes = 0;
  size_t at_least[CodePlanes::kMostUnary] = {};  // [0] is not used

  template <size_t kLanes>
  HWY_INLINE void Add(const RowBytes& ranks, int bits) {
    lanes += kLanes;
    for (int rest = 1; rest < CodePlanes::kMostUnary; ++rest) {
      const auto least = static_cast<uint8_t>(rest << (bits - 3));
      const uint64_t mask = MaskOfAtLeast(ranks, least) & kAllLanes<kLanes>;
      at_least[rest] += static_cast<size_t>(std::popcount(mask));
    }
  }

  // The number of low bits with which the ranks take the least room; the largest such number among
  // equals.
  int LowBits(int bits) const {
    int best = bits;
    size_t least = lanes * CodePlanes{bits, bits}.masks();
    for (const int fewer : {2, 3}) {
      const CodePlanes planes = {bits, bits - fewer};
      size_t taken = lanes * planes.masks();
      for (int rest = 1; rest < planes.most_unary(); ++rest) {
        taken += at_least[rest << (3 - fewer)];
      }
      if (taken < least) {
        least = taken;
        best = planes.low_bits;
      }
    }
    return best;
  }
};

template <size_t kLanes>
HWY_INLINE void WritePlanes(const CodePlanes& planes, const RowBytes& ranks, std::byte* masks,
                            RowWriter& writer) {
  for (int bit = 0; bit < planes.low_bits; ++bit, masks += kLanes / 8) {
    const uint64_t mask = MaskOfBit(ranks, bit);
    std::memcpy(masks, &mask, kLanes / 8);
  }
  if (planes.low_bits == planes.bits) return;
  uint64_t among =
      MaskOfAtLeast(ranks, static_cast<uint8_t>(1 << planes.low_bits)) & kAllLanes<kLanes>;
  std::memcpy(masks, &among, kLanes / 8);
  for (int rest = 2; rest <= planes.most_unary() && among != 0; ++rest) {
    const uint64_t at_least = MaskOfAtLeast(ranks, static_cast<uint8_t>(rest << planes.low_bits));
    writer.PutBits(ExtractBits(at_least, among), std::popcount(among));
    among &= at_least;
  }
}

// What ReadPlanes finds out about the ranks that it reads.
struct ReadRanks {
  bool any;    // whether a rank is not 0
  bool valid;  // whether all ranks are at most 2^bits - 2
};

// Reads the ranks of a group and adds them to `ranks`, which must be 0.
template <size_t kLanes>
HWY_INLINE ReadRanks ReadPlanes(const CodePlanes& planes, const std::byte* masks, RowReader& reader,
                                RowBytes& ranks) {
  uint64_t any = 0;
  uint64_t all = kAllLanes<kLanes>;
  for (int bit = 0; bit < planes.low_bits; ++bit, masks += kLanes / 8) {
    uint64_t mask = 0;
    std::memcpy(&mask, masks, kLanes / 8);
    AddWhere(mask, static_cast<uint8_t>(1 << bit), ranks);
    any |= mask;
    all &= mask;
  }
  if (planes.low_bits < planes.bits) {
    const auto step = static_cast<uint8_t>(1 << planes.low_bits);
    uint64_t among = 0;
    std::memcpy(&among, masks, kLanes / 8);
    AddWhere(among, step, ranks);
    any |= among;
    for (int rest = 2; rest <= planes.most_unary() && among != 0; ++rest) {
      among = DepositBits(reader.TakeBits(std::popcount(among)), among);
      AddWhere(among, step, ranks);
    }
    all &= among;
  }
  // With low_bits 0 the unary part cannot go beyond 2^bits - 2, so every rank is valid.
  return {any != 0, all == 0 || planes.low_bits == 0};
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::codec
HWY_AFTER_NAMESPACE();

#endif  // TANDEM_KVSTORE_CODEC_CODE_PLANES_INL_H_
