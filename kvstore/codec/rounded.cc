#include "kvstore/codec/rounded.h"

#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "fmt/format.h"
#include "kvstore/codec/rounded_layout.h"
#include "kvstore/codec/rounded_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvstore/codec/rounded.cc"
#include "hwy/foreach_target.h"
#include "kvstore/codec/rounded_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::codec {
namespace HWY_NAMESPACE {

// As WithFields (float_fields.h), but only for the types that are rounded: f32, f16 and bf16.
template <class Function>
auto WithRoundedFields(DType dtype, Function function) {
  if (dtype == DType::kF32) return function(F32Fields());
  if (dtype == DType::kF16) return function(F16Fields());
  return function(BF16Fields());
}

HWY_INLINE uint64_t ChannelsOf(size_t lanes) {
  return lanes < kRowLanes ? (uint64_t{1} << lanes) - 1 : ~uint64_t{0};
}

// Rounds the row at `raw`, which has `lanes` words.
template <class Fields>
HWY_INLINE bool RanksOfLanes(const RoundedRow& row, const std::byte* raw, size_t lanes,
                             RowRanks& ranks) {
  using Word = typename Fields::Word;
  if (lanes == kRowLanes) return RanksOf<Fields>(row, raw, ranks);
  Word words[kRowLanes] = {};
  std::memcpy(words, raw, lanes * sizeof(Word));
  return RanksOf<Fields>(row, reinterpret_cast<const std::byte*>(words), ranks);
}
template <class Fields>
HWY_INLINE void ValuesOfLanes(const RoundedRow& row, const RowRanks& ranks, size_t lanes,
                              std::byte* raw) {
  using Word = typename Fields::Word;
  if (lanes == kRowLanes) return ValuesOf<Fields>(row, ranks, raw);
  Word words[kRowLanes];
  ValuesOf<Fields>(row, ranks, reinterpret_cast<std::byte*>(words));
  std::memcpy(raw, words, lanes * sizeof(Word));
}

// Encodes an extent, whose words are those of Fields, and returns the size of the payload; 0 when it
// does not fit.
template <class Fields>
size_t EncodeExtent(const RoundedExtent& extent, RoundedHeader header, const std::byte* raw,
                    std::span<std::byte> out, KeyBytes& keys) {
  const RoundedParts parts = RoundedPartsOf(extent.shape, header);
  if (out.size() < parts.ExactRowsAt() + sizeof(uint32_t)) return 0;
  size_t at = sizeof(header);
  ForEachExactRun(extent.shape, header, [&](size_t raw_at, size_t bytes) {
    std::memcpy(out.data() + at, raw + raw_at, bytes);
    at += bytes;
  });
  std::byte* const flags = out.data() + parts.FlagsAt();
  std::memset(flags, 0, parts.ExactRowsAt() - parts.FlagsAt());
  const std::span<std::byte> behind = out.subspan(parts.ExactRowsAt());
  BitWriter writer(behind);
  std::vector<std::byte> exact_rows;  // rarely any
  ExactRows exact;
  size_t index = 0;
  ForEachRoundedRow(extent.shape, header, [&](const RowPlace& place) {
    const RoundedRow& row = extent.rows.Of(extent.layer, place.side, place.head)[place.row];
    const std::byte* const from = raw + place.raw_at;
    RowRanks ranks;
    if (RanksOfLanes<Fields>(row, from, place.lanes, ranks)) {
      WriteRanks(row, ranks, ChannelsOf(place.lanes), writer);
    } else {
      flags[index / 8] |= static_cast<std::byte>(1u << index % 8);
      exact_rows.insert(exact_rows.end(), from, from + place.lanes * sizeof(typename Fields::Word));
      exact.Add(place, extent.shape.dtype);
    }
    if (place.side == 0) header.key_bits = static_cast<uint32_t>(writer.bits_written());
    ++index;
    return true;
  });
  std::memcpy(out.data(), &header, sizeof(header));
  keys = RoundedKeys(extent.shape, header, exact);
  const size_t stream = writer.Finish();
  if (stream == 0 || behind.size() - stream < exact_rows.size()) return 0;
  std::memmove(behind.data() + exact_rows.size(), behind.data(), stream);
  std::ranges::copy(exact_rows, behind.begin());
  return parts.ExactRowsAt() + exact_rows.size() + stream;
}

// Decodes what lies behind the header of a payload. Each part is checked to lie within the payload
// before it is read.
template <class Fields>
bool DecodeExtent(const RoundedExtent& extent, const RoundedHeader& header,
                  std::span<const std::byte> payload, std::byte* raw) {
  const RoundedParts parts = RoundedPartsOf(extent.shape, header);
  if (payload.size() < parts.ExactRowsAt()) return false;
  size_t at = sizeof(header);
  ForEachExactRun(extent.shape, header, [&](size_t raw_at, size_t bytes) {
    std::memcpy(raw + raw_at, payload.data() + at, bytes);
    at += bytes;
  });
  const std::byte* const flags = payload.data() + parts.FlagsAt();
  if (parts.rows % 8 != 0 && (flags[parts.rows / 8] >> parts.rows % 8) != std::byte{0})
    return false;
  const ExactRows exact = ExactRowsOf(extent.shape, header, payload);
  const size_t exact_bytes = exact.bytes[0] + exact.bytes[1];
  if (payload.size() - parts.ExactRowsAt() < exact_bytes) return false;
  const std::byte* exact_row = payload.data() + parts.ExactRowsAt();
  std::optional<RowReader> reader =
      RowReader::Of(payload.subspan(parts.ExactRowsAt() + exact_bytes), 0);
  if (!reader) return false;
  const size_t bits_from = reader->bit_position();
  size_t key_bits = 0;
  size_t index = 0;
  const bool valid = ForEachRoundedRow(extent.shape, header, [&](const RowPlace& place) {
    std::byte* const to = raw + place.raw_at;
    bool is_right = true;
    if ((flags[index / 8] >> index % 8 & std::byte{1}) != std::byte{0}) {
      const size_t bytes = place.lanes * sizeof(typename Fields::Word);
      std::memcpy(to, exact_row, bytes);
      exact_row += bytes;
    } else {
      const RoundedRow& row = extent.rows.Of(extent.layer, place.side, place.head)[place.row];
      RowRanks ranks;
      is_right = ReadRanks(row, ChannelsOf(place.lanes), *reader, ranks);
      ValuesOfLanes<Fields>(row, ranks, place.lanes, to);
    }
    if (place.side == 0) key_bits = reader->bit_position() - bits_from;
    ++index;
    return is_right;
  });
  return valid && key_bits == header.key_bits && reader->Ended();
}

size_t EncodeRounded(const RoundedExtent& extent, const RoundedHeader& header, const std::byte* raw,
                     std::span<std::byte> out, KeyBytes& keys) {
  return WithRoundedFields(extent.shape.dtype, [&](auto fields) {
    return EncodeExtent<decltype(fields)>(extent, header, raw, out, keys);
  });
}

bool DecodeRounded(const RoundedExtent& extent, const RoundedHeader& header,
                   std::span<const std::byte> payload, std::byte* raw) {
  return WithRoundedFields(extent.shape.dtype, [&](auto fields) {
    return DecodeExtent<decltype(fields)>(extent, header, payload, raw);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::codec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
namespace codec {
namespace {

HWY_EXPORT(EncodeRounded);
HWY_EXPORT(DecodeRounded);

class Rounded final : public KvCodec {
 public:
  Rounded(std::shared_ptr<const CodecTables> tables, float step)
      : tables_(std::move(tables)),
        step_(step),
        id_(Hash64(std::as_bytes(std::span(&step_, 1)), tables_->rounding_id())),
        rows_(*tables_, step) {}

  CodecId id() const override { return CodecId::kRounded; }
  std::string name() const override { return fmt::format("step{:g}", step_); }
  bool lossless() const override { return false; }
  uint64_t tables_id() const override { return id_; }
  bool Fits(const ExtentShape& shape, int32_t layer) const override {
    return shape.dtype != DType::kF8E4M3 && tables_->Fit(shape, layer);
  }
  bool Decode(const ExtentShape& shape, int32_t layer, std::span<const std::byte> payload,
              std::span<std::byte> raw) const override {
    const auto header = ParseRoundedHeader(shape, payload);
    return header &&
           HWY_DYNAMIC_DISPATCH(DecodeRounded)({shape, layer, rows_}, *header, payload, raw.data());
  }

 private:
  std::optional<size_t> DoEncode(const ExtentShape& shape, const ExtentPlace& place,
                                 std::span<const std::byte> raw, std::span<std::byte> out,
                                 KeyBytes& keys) const override {
    const size_t size = HWY_DYNAMIC_DISPATCH(EncodeRounded)(
        {shape, place.layer, rows_}, RoundedHeaderOf(shape, place), raw.data(), out, keys);
    return size == 0 ? std::nullopt : std::optional(size);
  }

  const std::shared_ptr<const CodecTables> tables_;
  const float step_;
  const uint64_t id_;
  const RoundedRows rows_;
};

}  // namespace
}  // namespace codec

std::unique_ptr<KvCodec> NewRoundedCodec(std::shared_ptr<const CodecTables> tables, float step) {
  TANDEM_CHECK(tables->for_rounding(), "tables without centres and spreads");
  TANDEM_CHECK(step >= 0x1p-10f && step <= 2, "KV is rounded to steps of 2^-10 to 2 spreads");
  return std::make_unique<codec::Rounded>(std::move(tables), step);
}

}  // namespace tandem
#endif  // HWY_ONCE
