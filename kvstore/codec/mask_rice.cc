#include <bit>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvstore/codec/mask_rice.cc"
#include "hwy/foreach_target.h"
#include "kvstore/codec/extent-inl.h"

// The codec mask-rice writes ranks in unary, two at a time, as masks over the channels of a row:
// which channels have an odd rank, which have at least 2, which of those have at least 4, and so on
// to 14, which means no rank. It is Rice's code with one low bit, turned so that a row's bits of
// one kind lie side by side.

HWY_BEFORE_NAMESPACE();
namespace tandem::codec {
namespace HWY_NAMESPACE {

struct MaskRiceCoder {
  static constexpr size_t kMasks = 2;  // the mask of odd ranks and the mask of ranks from 2 on
  static constexpr uint8_t kStep = 2;

  static HWY_INLINE uint64_t Write(const RowBytes& ranks, size_t lanes, std::byte* fixed,
                                   RowWriter& writer) {
    const uint64_t odd = MaskOfBit(ranks, 0) & AllOf(lanes);
    uint64_t among = MaskOfAtLeast(ranks, kStep) & AllOf(lanes);
    std::memcpy(fixed, &odd, lanes / 8);
    std::memcpy(fixed + lanes / 8, &among, lanes / 8);
    for (uint8_t least = 2 * kStep; least <= CodecTables::kNoRank && among != 0; least += kStep) {
      const uint64_t at_least = MaskOfAtLeast(ranks, least) & AllOf(lanes);
      writer.PutBits(ExtractBits(at_least, among), std::popcount(among));
      among = at_least;
    }
    return among;
  }

  static HWY_INLINE uint64_t Read(const std::byte* fixed, size_t lanes, RowReader& reader,
                                  RowBytes& ranks) {
    uint64_t odd = 0;
    uint64_t among = 0;
    std::memcpy(&odd, fixed, lanes / 8);
    std::memcpy(&among, fixed + lanes / 8, lanes / 8);
    AddWhere(odd, 1, ranks);
    AddWhere(among, kStep, ranks);
    for (uint8_t least = 2 * kStep; least <= CodecTables::kNoRank && among != 0; least += kStep) {
      among = DepositBits(reader.TakeBits(std::popcount(among)), among);
      AddWhere(among, kStep, ranks);
    }
    return among;
  }
};

size_t EncodeMaskRice(const CodecExtent& extent, const std::byte* raw, std::span<std::byte> out,
                      KeyBytes& keys) {
  return EncodeExtent<MaskRiceCoder>(extent, raw, out, keys);
}
bool DecodeMaskRice(const CodecExtent& extent, std::span<const std::byte> payload, std::byte* raw) {
  return DecodeExtent<MaskRiceCoder>(extent, payload, raw);
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::codec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::codec {
namespace {

HWY_EXPORT(EncodeMaskRice);
HWY_EXPORT(DecodeMaskRice);

}  // namespace

size_t MaskRice::EncodeRows(const CodecExtent& extent, const std::byte* raw,
                            std::span<std::byte> out, KeyBytes& keys) const {
  return HWY_DYNAMIC_DISPATCH(EncodeMaskRice)(extent, raw, out, keys);
}

bool MaskRice::DecodeRows(const CodecExtent& extent, std::span<const std::byte> payload,
                          std::byte* raw) const {
  return HWY_DYNAMIC_DISPATCH(DecodeMaskRice)(extent, payload, raw);
}

}  // namespace tandem::codec
#endif  // HWY_ONCE
