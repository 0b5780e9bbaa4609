// Rounds the values of a row to integers, writes these as masks, and the way back. Included once per
// target (Highway's foreach_target).
#if defined(TANDEM_KVSTORE_CODEC_ROUNDED_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KVSTORE_CODEC_ROUNDED_ROW_INL_H_
#undef TANDEM_KVSTORE_CODEC_ROUNDED_ROW_INL_H_
#else
#define TANDEM_KVSTORE_CODEC_ROUNDED_ROW_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kvstore/codec/bit_writer.h"
#include "kvstore/codec/float_words-inl.h"
#include "kvstore/codec/rounded_rows.h"
#include "kvstore/codec/row_streams.h"
#include "kvstore/codec/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::codec {
namespace HWY_NAMESPACE {

using FloatTag = hn::CappedTag<float, kRowLanes>;
using IntTag = hn::RebindToSigned<FloatTag>;
using WordTag = hn::RebindToUnsigned<FloatTag>;
using Words = hn::Vec<WordTag>;

// The ranks of a row's values: their low bits, and the rest above them.
struct RowRanks {
  RowBytes low;
  RowBytes rest;
};

// Stores the lowest bytes of the words that `words(i)` returns for the i-th vector of a row.
template <class Function>
HWY_INLINE void StoreBytes(Function words, RowBytes& bytes) {
#if HWY_TARGET == HWY_SCALAR
  for (size_t i = 0; i < kRowLanes; ++i) {
    bytes.at[i] = static_cast<uint8_t>(hn::GetLane(words(i)));
  }
#else
  // Four vectors are put together in registers and stored as one: a load that is wider than the
  // stores before it would have to wait for them.
  constexpr size_t kLanes = hn::MaxLanes(FloatTag());
  const hn::Repartition<uint16_t, WordTag> d16;
  const hn::Repartition<uint8_t, WordTag> d8;
  for (size_t i = 0; i < kRowLanes / kLanes; i += 4) {
    const auto halves = [&words, d16](size_t at) HWY_ATTR { return hn::BitCast(d16, words(at)); };
    const auto low = hn::ConcatEven(d16, halves(i + 1), halves(i));
    const auto high = hn::ConcatEven(d16, halves(i + 3), halves(i + 2));
    hn::Store(hn::ConcatEven(d8, hn::BitCast(d8, high), hn::BitCast(d8, low)), d8,
              bytes.at + i * kLanes);
  }
#endif
}

// Rounds the values of a row of 64 words. False when one of them is not finite or so far from its
// centre that the row is to be kept as it is.
template <class Fields>
HWY_INLINE bool RanksOf(const RoundedRow& row, const std::byte* raw, RowRanks& ranks) {
  constexpr FloatTag d;
  constexpr IntTag di;
  constexpr WordTag du;
  constexpr size_t kLanes = hn::MaxLanes(d);
  constexpr float kMostCode = 0x1p20f;
  const auto inverse = hn::Set(d, row.inverse_step);
  Words low[kRowLanes / kLanes];
  Words rest[kRowLanes / kLanes];
  auto largest = hn::Zero(du);
  auto farthest = hn::Zero(d);
  for (size_t i = 0; i < kRowLanes / kLanes; ++i) {
    const auto value =
        FloatWords<Fields>::Load(d, raw + i * kLanes * sizeof(typename Fields::Word));
    const auto offset = hn::Mul(hn::Sub(value, hn::Load(d, row.centres + i * kLanes)), inverse);
    // A NaN becomes larger than kMostCode.
    const auto distance = hn::IfThenElse(hn::Le(hn::Abs(offset), hn::Set(d, kMostCode)),
                                         hn::Abs(offset), hn::Set(d, 2 * kMostCode));
    farthest = hn::Max(farthest, distance);
    const auto code =
        hn::NearestInt(hn::Min(hn::Max(offset, hn::Set(d, -kMostCode)), hn::Set(d, kMostCode)));
    const auto sign = hn::BroadcastSignBit(code);
    const auto rank = hn::BitCast(du, hn::Xor(hn::Add(code, code), sign));
    const auto low_bits = hn::Load(du, row.low_bits + i * kLanes);
    rest[i] = hn::Shr(rank, low_bits);
    low[i] = hn::Sub(rank, hn::Shl(rest[i], low_bits));
    largest = hn::Max(largest, rest[i]);
  }
  StoreBytes([&low](size_t i) HWY_ATTR { return low[i]; }, ranks.low);
  StoreBytes([&rest](size_t i) HWY_ATTR { return rest[i]; }, ranks.rest);
  return hn::GetLane(hn::MaxOfLanes(d, farthest)) <= kMostCode &&
         hn::GetLane(hn::MaxOfLanes(di, hn::BitCast(di, largest))) <= RoundedRow::kMostRest;
}

// Turns ranks into 64 words again.
template <class Fields>
HWY_INLINE void ValuesOf(const RoundedRow& row, const RowRanks& ranks, std::byte* raw) {
  constexpr FloatTag d;
  constexpr IntTag di;
  constexpr WordTag du;
  constexpr size_t kLanes = hn::MaxLanes(d);
  const hn::Rebind<uint8_t, FloatTag> d8;
  const auto one = hn::Set(du, 1u);
  const auto step = hn::Set(d, row.step);
  for (size_t i = 0; i < kRowLanes; i += kLanes) {
    const auto low = hn::PromoteTo(du, hn::LoadU(d8, ranks.low.at + i));
    const auto rest = hn::PromoteTo(du, hn::LoadU(d8, ranks.rest.at + i));
    const auto rank = hn::Add(hn::Shl(rest, hn::Load(du, row.low_bits + i)), low);
    const auto negative = hn::Sub(hn::Zero(du), hn::And(rank, one));
    const auto code = hn::BitCast(di, hn::Xor(hn::ShiftRight<1>(rank), negative));
    const auto offset = hn::Mul(hn::ConvertTo(d, code), step);
    FloatWords<Fields>::Store(hn::Add(offset, hn::Load(d, row.centres + i)), d,
                              raw + i * sizeof(typename Fields::Word));
  }
}

HWY_INLINE void WriteRanks(const RoundedRow& row, const RowRanks& ranks, uint64_t lanes,
                           BitWriter& writer) {
  for (int32_t plane = 0; plane < row.num_planes; ++plane) {
    const uint64_t channels = row.planes[plane];
    writer.PutBits(ExtractBits(MaskOfBit(ranks.low, plane), channels), std::popcount(channels));
  }
  uint64_t among = lanes;
  for (uint8_t least = 1; among != 0; ++least) {
    const uint64_t at_least = MaskOfAtLeast(ranks.rest, least);
    writer.PutBits(ExtractBits(at_least, among), std::popcount(among));
    among &= at_least;
  }
}

// Reads what WriteRanks wrote. False when a rest is larger than any that is written.
HWY_INLINE bool ReadRanks(const RoundedRow& row, uint64_t lanes, RowReader& reader,
                          RowRanks& ranks) {
  ranks = {};
  for (int32_t plane = 0; plane < row.num_planes; ++plane) {
    const uint64_t channels = row.planes[plane];
    AddWhere(DepositBits(reader.TakeBits(std::popcount(channels)), channels),
             static_cast<uint8_t>(1u << plane), ranks.low);
  }
  uint64_t among = lanes;
  for (int least = 1; among != 0; ++least) {
    among = DepositBits(reader.TakeBits(std::popcount(among)), among);
    AddWhere(among, 1, ranks.rest);
    if (least > RoundedRow::kMostRest && among != 0) return false;
  }
  return true;
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::codec
HWY_AFTER_NAMESPACE();

#endif  // TANDEM_KVSTORE_CODEC_ROUNDED_ROW_INL_H_
