// The loops over whole extents that the codecs f3 and mask-rice share; a template parameter has
// what differs. Included once per target (Highway's foreach_target).
#if defined(TANDEM_KVSTORE_CODEC_EXTENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KVSTORE_CODEC_EXTENT_INL_H_
#undef TANDEM_KVSTORE_CODEC_EXTENT_INL_H_
#else
#define TANDEM_KVSTORE_CODEC_EXTENT_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "kvstore/codec/codecs.h"
#include "kvstore/codec/extent_rows.h"
#include "kvstore/codec/row_streams.h"
#include "kvstore/codec/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::codec {
namespace HWY_NAMESPACE {

// A coder writes and reads the ranks of the exponents in a row. It has
//   kMasks: the number of masks that each row has, beside what it puts into the stream of bits
//   static uint64_t Write(ranks, lanes, fixed, writer), which returns a mask of the channels whose
//     exponent is escaped
//   static uint64_t Read(fixed, lanes, reader, ranks), which returns the same mask
// Write and Read see 64 ranks, of which the first `lanes` count.

template <class Fields, class Coder>
constexpr size_t RowBytesOf(size_t lanes) {
  return RowSplit<Fields>::RestBytes(lanes) + Coder::kMasks * (lanes / 8);
}

HWY_INLINE uint64_t AllOf(size_t lanes) {
  return lanes < kRowLanes ? (uint64_t{1} << lanes) - 1 : ~uint64_t{0};
}

template <class Fields, class Coder>
HWY_INLINE void EncodeLanes(const std::byte* raw, const ExtentRow& row, size_t lanes,
                            RowWriter& writer) {
  RowBytes tops = {};
  RowBytes exponents;
  RowBytes ranks;
  std::memcpy(tops.at, row.tops, lanes);
  std::byte* const fixed = writer.NextFixed(RowBytesOf<Fields, Coder>(lanes));
  RowSplit<Fields>::Split(raw + row.raw_at, lanes, exponents, fixed);
  RanksOf(*row.side, tops, exponents, ranks);
  const uint64_t escaped =
      Coder::Write(ranks, lanes, fixed + RowSplit<Fields>::RestBytes(lanes), writer);
  writer.PutEscapes(exponents.at, escaped);
}

template <class Fields, class Coder>
HWY_INLINE void DecodeLanes(const ExtentRow& row, size_t lanes, RowReader& reader, std::byte* raw) {
  RowBytes tops = {};
  RowBytes exponents;
  RowBytes ranks = {};
  std::memcpy(tops.at, row.tops, lanes);
  const std::byte* const fixed = reader.NextFixed(RowBytesOf<Fields, Coder>(lanes));
  uint64_t escaped =
      Coder::Read(fixed + RowSplit<Fields>::RestBytes(lanes), lanes, reader, ranks) & AllOf(lanes);
  ExponentsOf(*row.side, tops, ranks, exponents);
  for (; escaped != 0; escaped &= escaped - 1) {
    exponents.at[std::countr_zero(escaped)] = reader.TakeEscape();
  }
  RowSplit<Fields>::Join(fixed, lanes, exponents, raw + row.raw_at);
}

// Rows of 64 channels, and most models have no others, get code of their own: there the compiler knows
// the sizes of a row's parts, so that it calls no function to copy them.
template <class Fields, class Coder>
bool EncodeRow(const std::byte* raw, const ExtentRow& row, RowWriter& writer) {
  if (!writer.HasRoomForRow()) return false;
  if (row.lanes == kRowLanes) {
    EncodeLanes<Fields, Coder>(raw, row, kRowLanes, writer);
  } else {
    EncodeLanes<Fields, Coder>(raw, row, row.lanes, writer);
  }
  return true;
}

template <class Fields, class Coder>
void DecodeRow(const ExtentRow& row, RowReader& reader, std::byte* raw) {
  if (row.lanes == kRowLanes) {
    DecodeLanes<Fields, Coder>(row, kRowLanes, reader, raw);
  } else {
    DecodeLanes<Fields, Coder>(row, row.lanes, reader, raw);
  }
}

// Implements ExponentCodec::EncodeRows with one coder of ranks.
template <class Coder>
size_t EncodeExtent(const CodecExtent& extent, const std::byte* raw, std::span<std::byte> out,
                    KeyBytes& keys) {
  return WithFields(extent.shape.dtype, [&](auto fields) -> size_t {
    using Fields = decltype(fields);
    const size_t fixed = FixedBytes(extent.shape, RowBytesOf<Fields, Coder>);
    if (out.size() < fixed + kLeastStreamBytes) return 0;
    RowWriter writer(out, fixed);
    const size_t values_at = extent.shape.Bytes() / 2;
    size_t key_bits = 0;
    size_t key_escapes = 0;
    const bool fits =
        ForEachRow(extent.shape, extent.layer, extent.tables, [&](const ExtentRow& row) {
          if (row.raw_at == values_at) {
            key_bits = writer.bits_written();
            key_escapes = writer.escapes_written();
          }
          return EncodeRow<Fields, Coder>(raw, row, writer);
        });
    keys = KeysOfRows(fixed, key_bits, key_escapes, writer.escapes_written());
    return fits ? writer.Finish() : 0;
  });
}

template <class Coder>
bool DecodeExtent(const CodecExtent& extent, std::span<const std::byte> payload, std::byte* raw) {
  return WithFields(extent.shape.dtype, [&](auto fields) {
    using Fields = decltype(fields);
    const size_t fixed = FixedBytes(extent.shape, RowBytesOf<Fields, Coder>);
    std::optional<RowReader> reader = RowReader::Of(payload, fixed);
    if (!reader) return false;
    ForEachRow(extent.shape, extent.layer, extent.tables, [&](const ExtentRow& row) {
      DecodeRow<Fields, Coder>(row, *reader, raw);
      return true;
    });
    return reader->Ended();
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::codec
HWY_AFTER_NAMESPACE();

#endif  // TANDEM_KVSTORE_CODEC_EXTENT_INL_H_
