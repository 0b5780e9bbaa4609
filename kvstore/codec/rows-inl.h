// Splits rows of up to 64 channels into exponents and the rest, and joins them again, for all
// codecs that work on rows. Included once per target (Highway's foreach_target). Every target
// writes the same bytes.
#if defined(TANDEM_KVSTORE_CODEC_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KVSTORE_CODEC_ROWS_INL_H_
#undef TANDEM_KVSTORE_CODEC_ROWS_INL_H_
#else
#define TANDEM_KVSTORE_CODEC_ROWS_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kvstore/codec/codec_tables.h"
#include "kvstore/codec/extent_rows.h"
#include "kvstore/codec/float_fields.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::codec {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

static_assert(std::endian::native == std::endian::little, "masks are stored as they lie in memory");

using ByteTag = hn::CappedTag<uint8_t, kRowLanes>;

// One byte per channel of a row. What lies beyond the row's channels means nothing.
struct alignas(64) RowBytes {
  uint8_t at[kRowLanes];
};

#if HWY_TARGET == HWY_SCALAR

// The target HWY_SCALAR has vectors of one byte, without table look-ups and masks, so loops over
// bytes take their place.
HWY_INLINE uint64_t MaskOfAtLeast(const RowBytes& bytes, uint8_t least) {
  uint64_t mask = 0;
  for (size_t i = 0; i < kRowLanes; ++i) mask |= uint64_t{bytes.at[i] >= least} << i;
  return mask;
}
HWY_INLINE uint64_t MaskOfBit(const RowBytes& bytes, int bit) {
  uint64_t mask = 0;
  for (size_t i = 0; i < kRowLanes; ++i) mask |= uint64_t{(bytes.at[i] >> bit & 1u) != 0} << i;
  return mask;
}
HWY_INLINE void AddWhere(uint64_t mask, uint8_t value, RowBytes& bytes) {
  for (size_t i = 0; i < kRowLanes; ++i) {
    if ((mask >> i & 1) != 0) bytes.at[i] = static_cast<uint8_t>(bytes.at[i] + value);
  }
}
HWY_INLINE void RanksOf(const CodecTables::Side& side, const RowBytes& tops,
                        const RowBytes& exponents, RowBytes& ranks) {
  for (size_t i = 0; i < kRowLanes; ++i) {
    const int below = std::max(0, tops.at[i] - exponents.at[i]);
    ranks.at[i] = side.ranks[static_cast<size_t>(std::min(below, CodecTables::kNumDistances - 1))];
  }
}
HWY_INLINE void ExponentsOf(const CodecTables::Side& side, const RowBytes& tops,
                            const RowBytes& ranks, RowBytes& exponents) {
  for (size_t i = 0; i < kRowLanes; ++i) {
    exponents.at[i] = static_cast<uint8_t>(tops.at[i] - side.distances[ranks.at[i]]);
  }
}
HWY_INLINE void LimitTo(uint8_t most, RowBytes& bytes) {
  for (uint8_t& byte : bytes.at) byte = std::min(byte, most);
}

#else

// A mask has one bit per channel; on a target with small vectors a part of it is written at a time,
// and Highway may read or write a few bytes beyond it.
struct MaskBytes {
  uint8_t at[sizeof(uint64_t) + HWY_MAX_BYTES];
};

template <class Predicate>
HWY_INLINE uint64_t MaskOf(const RowBytes& bytes, Predicate predicate) {
  const ByteTag d;
  // Each part of the mask is read as wide as it was written: a wide read would have to wait for two
  // narrow writes.
  constexpr size_t kPart = hn::MaxLanes(d);
  uint64_t bits = 0;
  for (size_t i = 0; i < kRowLanes; i += kPart) {
    MaskBytes mask;
    hn::StoreMaskBits(d, predicate(d, hn::Load(d, bytes.at + i)), mask.at);
    uint64_t part = 0;
    std::memcpy(&part, mask.at, kPart / 8);
    bits |= part << i;
  }
  return bits;
}

HWY_INLINE uint64_t MaskOfAtLeast(const RowBytes& bytes, uint8_t least) {
  return MaskOf(
      bytes, [least](auto d, auto v) HWY_ATTR { return hn::Eq(hn::Max(v, hn::Set(d, least)), v); });
}
HWY_INLINE uint64_t MaskOfBit(const RowBytes& bytes, int bit) {
  return MaskOf(bytes, [bit](auto d, auto v) HWY_ATTR {
    const auto one = hn::Set(d, static_cast<uint8_t>(1u << bit));
    return hn::Eq(hn::And(v, one), one);
  });
}

// Adds `value` to the bytes of the channels in `mask`.
HWY_INLINE void AddWhere(uint64_t mask, uint8_t value, RowBytes& bytes) {
  const ByteTag d;
  MaskBytes bits = {};
  std::memcpy(bits.at, &mask, sizeof(mask));
  for (size_t i = 0; i < kRowLanes; i += hn::Lanes(d)) {
    const auto add = hn::IfThenElseZero(hn::LoadMaskBits(d, bits.at + i / 8), hn::Set(d, value));
    hn::Store(hn::Add(hn::Load(d, bytes.at + i), add), d, bytes.at + i);
  }
}

// Looks up the ranks of exponents by their distances below the tops of their channels. Reads 64
// tops.
HWY_INLINE void RanksOf(const CodecTables::Side& side, const RowBytes& tops,
                        const RowBytes& exponents, RowBytes& ranks) {
  const ByteTag d;
  const auto low_bits = hn::Set(d, uint8_t{15});
  for (size_t i = 0; i < kRowLanes; i += hn::Lanes(d)) {
    const auto below = hn::SaturatedSub(hn::Load(d, tops.at + i), hn::Load(d, exponents.at + i));
    const auto distance = hn::Min(below, hn::Set(d, uint8_t{CodecTables::kNumDistances - 1}));
    const auto low = hn::And(distance, low_bits);
    auto rank = hn::TableLookupBytes(hn::LoadDup128(d, side.ranks.data()), low);
    for (uint8_t first = 16; first < CodecTables::kNumDistances; first += 16) {
      const auto beyond = hn::Eq(hn::Max(distance, hn::Set(d, first)), distance);
      const auto other = hn::TableLookupBytes(hn::LoadDup128(d, side.ranks.data() + first), low);
      rank = hn::IfThenElse(beyond, other, rank);
    }
    hn::Store(rank, d, ranks.at + i);
  }
}

// The inverse of RanksOf: the exponents that have these ranks, which are at most 15.
HWY_INLINE void ExponentsOf(const CodecTables::Side& side, const RowBytes& tops,
                            const RowBytes& ranks, RowBytes& exponents) {
  const ByteTag d;
  const auto distances = hn::LoadDup128(d, side.distances.data());
  for (size_t i = 0; i < kRowLanes; i += hn::Lanes(d)) {
    const auto distance = hn::TableLookupBytes(distances, hn::Load(d, ranks.at + i));
    hn::Store(hn::Sub(hn::Load(d, tops.at + i), distance), d, exponents.at + i);
  }
}

HWY_INLINE void LimitTo(uint8_t most, RowBytes& bytes) {
  const ByteTag d;
  for (size_t i = 0; i < kRowLanes; i += hn::Lanes(d)) {
    hn::Store(hn::Min(hn::Load(d, bytes.at + i), hn::Set(d, most)), d, bytes.at + i);
  }
}

#endif  // HWY_TARGET == HWY_SCALAR

// The bits of `value` where `mask` has a one, side by side from the lowest on.
HWY_INLINE uint64_t ExtractBits(uint64_t value, uint64_t mask) {
#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX2
  return _pext_u64(value, mask);
#else
  uint64_t bits = 0;
  for (uint64_t bit = 1; mask != 0; bit <<= 1, mask &= mask - 1) {
    if ((value & mask & -mask) != 0) bits |= bit;
  }
  return bits;
#endif
}
// The inverse of ExtractBits: moves the lowest bits of `bits` to where `mask` has a one.
HWY_INLINE uint64_t DepositBits(uint64_t bits, uint64_t mask) {
#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX2
  return _pdep_u64(bits, mask);
#else
  uint64_t value = 0;
  for (; mask != 0; bits >>= 1, mask &= mask - 1) {
    if ((bits & 1) != 0) value |= mask & -mask;
  }
  return value;
#endif
}

// Splits the words of a row into exponents and the rest, and joins them again. The rest is stored
// in the order of the frame: whole bytes of each channel, then single bits as masks.
template <class Fields>
struct RowSplit {
  using Word = typename Fields::Word;
  static constexpr size_t kBytePlanes = Fields::kRestBits / 8;
  static constexpr int kBitPlanes = Fields::kRestBits % 8;
  static constexpr size_t RestBytes(size_t lanes) {
    return kBytePlanes * lanes + kBitPlanes * lanes / 8;
  }

  static HWY_INLINE void Split(const std::byte* raw, size_t lanes, RowBytes& exponents,
                               std::byte* out) {
    Word words[kRowLanes];
    Word rest[kRowLanes];
    if (lanes < kRowLanes) std::memset(words, 0, sizeof(words));
    std::memcpy(words, raw, lanes * sizeof(words[0]));
    for (size_t i = 0; i < kRowLanes; ++i) exponents.at[i] = Fields::Exponent(words[i]);
    for (size_t i = 0; i < kRowLanes; ++i) rest[i] = Fields::Rest(words[i]);
    RowBytes plane;
    for (size_t byte = 0; byte < kBytePlanes; ++byte, out += lanes) {
      for (size_t i = 0; i < kRowLanes; ++i) {
        plane.at[i] = static_cast<uint8_t>(rest[i] >> (8 * byte));
      }
      std::memcpy(out, plane.at, lanes);
    }
    if constexpr (kBitPlanes > 0) {
      for (size_t i = 0; i < kRowLanes; ++i) {
        plane.at[i] = static_cast<uint8_t>(rest[i] >> (8 * kBytePlanes));
      }
      for (int bit = 0; bit < kBitPlanes; ++bit, out += lanes / 8) {
        const uint64_t mask = MaskOfBit(plane, bit);
        std::memcpy(out, &mask, lanes / 8);
      }
    }
  }

  static HWY_INLINE void Join(const std::byte* in, size_t lanes, const RowBytes& exponents,
                              std::byte* raw) {
    Word rest[kRowLanes] = {};
    RowBytes plane = {};
    for (size_t byte = 0; byte < kBytePlanes; ++byte, in += lanes) {
      std::memcpy(plane.at, in, lanes);
      for (size_t i = 0; i < kRowLanes; ++i) {
        rest[i] = static_cast<Word>(rest[i] | uint32_t{plane.at[i]} << (8 * byte));
      }
    }
    if constexpr (kBitPlanes > 0) {
      plane = {};
      for (int bit = 0; bit < kBitPlanes; ++bit, in += lanes / 8) {
        uint64_t mask = 0;
        std::memcpy(&mask, in, lanes / 8);
        AddWhere(mask, static_cast<uint8_t>(1u << bit), plane);
      }
      for (size_t i = 0; i < kRowLanes; ++i) {
        rest[i] = static_cast<Word>(rest[i] | uint32_t{plane.at[i]} << (8 * kBytePlanes));
      }
    }
    Word words[kRowLanes];
    for (size_t i = 0; i < kRowLanes; ++i) words[i] = Fields::Join(exponents.at[i], rest[i]);
    std::memcpy(raw, words, lanes * sizeof(words[0]));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace tandem::codec
HWY_AFTER_NAMESPACE();

#endif  // TANDEM_KVSTORE_CODEC_ROWS_INL_H_
