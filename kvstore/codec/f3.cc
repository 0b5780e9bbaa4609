#include <bit>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvstore/codec/f3.cc"
#include "hwy/foreach_target.h"
#include "kvstore/codec/extent-inl.h"

// The codec f3 takes three bits per channel: codes for the seven most frequent distances, and one
// for all others. It takes fewer steps than mask-rice, and its payload is a little larger.

HWY_BEFORE_NAMESPACE();
namespace tandem::codec {
namespace HWY_NAMESPACE {

struct F3Coder {
  static constexpr size_t kMasks = 3;
  static constexpr uint8_t kEscape = (1u << kMasks) - 1;

  static HWY_INLINE uint64_t Write(const RowBytes& ranks, size_t lanes, std::byte* fixed,
                                   RowWriter&) {
    RowBytes codes = ranks;
    LimitTo(kEscape, codes);
    uint64_t escaped = AllOf(lanes);
    for (size_t plane = 0; plane < kMasks; ++plane, fixed += lanes / 8) {
      const uint64_t mask = MaskOfBit(codes, static_cast<int>(plane)) & AllOf(lanes);
      std::memcpy(fixed, &mask, lanes / 8);
      escaped &= mask;
    }
    return escaped;
  }

  static HWY_INLINE uint64_t Read(const std::byte* fixed, size_t lanes, RowReader&,
                                  RowBytes& codes) {
    uint64_t escaped = ~uint64_t{0};
    for (size_t plane = 0; plane < kMasks; ++plane, fixed += lanes / 8) {
      uint64_t mask = 0;
      std::memcpy(&mask, fixed, lanes / 8);
      AddWhere(mask, static_cast<uint8_t>(1u << plane), codes);
      escaped &= mask;
    }
    return escaped;
  }
};

size_t EncodeF3(const CodecExtent& extent, const std::byte* raw, std::span<std::byte> out,
                KeyBytes& keys) {
  return EncodeExtent<F3Coder>(extent, raw, out, keys);
}
bool DecodeF3(const CodecExtent& extent, std::span<const std::byte> payload, std::byte* raw) {
  return DecodeExtent<F3Coder>(extent, payload, raw);
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::codec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::codec {
namespace {

HWY_EXPORT(EncodeF3);
HWY_EXPORT(DecodeF3);

}  // namespace

size_t F3::EncodeRows(const CodecExtent& extent, const std::byte* raw, std::span<std::byte> out,
                      KeyBytes& keys) const {
  return HWY_DYNAMIC_DISPATCH(EncodeF3)(extent, raw, out, keys);
}

bool F3::DecodeRows(const CodecExtent& extent, std::span<const std::byte> payload,
                    std::byte* raw) const {
  return HWY_DYNAMIC_DISPATCH(DecodeF3)(extent, payload, raw);
}

}  // namespace tandem::codec
#endif  // HWY_ONCE
