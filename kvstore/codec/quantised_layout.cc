#include "kvstore/codec/quantised_layout.h"

#include <cstring>

namespace tandem::codec {
namespace {

// Whether encoding may choose this number of low bits: all bits are low, or two fewer, or three.
// With one fewer the rest is one more mask, so that nothing would be smaller than with all.
bool IsOneOfEncode(int bits, int low_bits) {
  return bits >= kLeastQuantisedBits && bits <= kMostQuantisedBits &&
         (low_bits == bits || low_bits == bits - 2 || low_bits == bits - 3);
}

size_t QuantisedTokens(const ExtentShape& shape, const QuantisedHeader& header) {
  return static_cast<size_t>(shape.num_kv_heads) *
         static_cast<size_t>(shape.tokens - header.exact_tokens());
}

}  // namespace

QuantisedHeader QuantisedHeaderOf(const ExtentShape& shape, const ExtentPlace& place,
                                  QuantisedBits bits) {
  const int32_t front = std::clamp(place.exact_front, 0, shape.tokens);
  const int32_t back = std::clamp(place.exact_back, 0, shape.tokens - front);
  QuantisedHeader header;
  header.bits[0] = static_cast<uint8_t>(bits.k);
  header.bits[1] = static_cast<uint8_t>(bits.v);
  header.exact_front = static_cast<uint16_t>(front);
  header.exact_back = static_cast<uint16_t>(back);
  return header;
}

std::optional<QuantisedHeader> ParseQuantisedHeader(const ExtentShape& shape,
                                                    std::span<const std::byte> payload) {
  QuantisedHeader header;
  if (payload.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, payload.data(), sizeof(header));
  if (header.version != QuantisedHeader().version || header.zero != 0 ||
      header.exact_tokens() > shape.tokens || !IsOneOfEncode(header.bits[0], header.low_bits[0]) ||
      !IsOneOfEncode(header.bits[1], header.low_bits[1])) {
    return std::nullopt;
  }
  return header;
}

QuantisedSizes QuantisedSizesOf(const ExtentShape& shape, const QuantisedHeader& header) {
  size_t groups_of_token = 0;
  for (auto left = static_cast<size_t>(shape.head_dim); left > 0; left -= GroupLanes(left)) {
    ++groups_of_token;
  }
  const auto exact = static_cast<size_t>(header.exact_tokens());
  return {.exact_tokens = shape.Bytes() / static_cast<size_t>(shape.tokens) * exact,
          .groups = 2 * QuantisedTokens(shape, header) * groups_of_token};
}

KeyBytes QuantisedKeys(const ExtentShape& shape, const QuantisedHeader& header,
                       const ExactGroups& exact, size_t key_bits) {
  const QuantisedSizes sizes = QuantisedSizesOf(shape, header);
  const size_t mask_bytes = QuantisedTokens(shape, header) * PlanesOf(header, 0).masks() *
                            static_cast<size_t>(shape.head_dim) / 8;
  const size_t scale_bytes = sizes.groups / 2 * sizeof(uint16_t);
  return {.bytes = sizeof(header) / 2 + sizes.exact_tokens / 2 + scale_bytes + exact.bytes[0] +
                   mask_bytes + sizeof(uint32_t) / 2 + (key_bits + 7) / 8,
          .escapes = exact.groups[0],
          .all_escapes = exact.groups[0] + exact.groups[1]};
}

size_t QuantisedMaskBytes(const ExtentShape& shape, const QuantisedHeader& header) {
  const size_t masks = PlanesOf(header, 0).masks() + PlanesOf(header, 1).masks();
  return QuantisedTokens(shape, header) * masks * static_cast<size_t>(shape.head_dim) / 8;
}

}  // namespace tandem::codec
