#include "kvstore/codec/rounded_layout.h"

#include <algorithm>
#include <cstring>

namespace tandem::codec {

RoundedHeader RoundedHeaderOf(const ExtentShape& shape, const ExtentPlace& place) {
  RoundedHeader header;
  header.exact_front = static_cast<uint16_t>(std::clamp(place.exact_front, 0, shape.tokens));
  return header;
}

std::optional<RoundedHeader> ParseRoundedHeader(const ExtentShape& shape,
                                                std::span<const std::byte> payload) {
  RoundedHeader header;
  if (payload.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, payload.data(), sizeof(header));
  const bool is_right = header.version == RoundedHeader().version && header.zero == 0 &&
                        header.exact_front <= shape.tokens && header.key_bits / 8 <= payload.size();
  return is_right ? std::optional(header) : std::nullopt;
}

RoundedParts RoundedPartsOf(const ExtentShape& shape, const RoundedHeader& header) {
  const auto tokens = static_cast<size_t>(shape.tokens);
  const size_t rows_of_head = (static_cast<size_t>(shape.head_dim) + 63) / 64;
  const size_t rounded = tokens - header.exact_front;
  return {.exact_tokens = shape.Bytes() / tokens * header.exact_front,
          .rows = 2 * static_cast<size_t>(shape.num_kv_heads) * rows_of_head * rounded};
}

ExactRows ExactRowsOf(const ExtentShape& shape, const RoundedHeader& header,
                      std::span<const std::byte> payload) {
  const std::byte* const flags = payload.data() + RoundedPartsOf(shape, header).FlagsAt();
  ExactRows exact;
  size_t index = 0;
  ForEachRoundedRow(shape, header, [&](const RowPlace& place) {
    const bool is_exact = (flags[index / 8] >> index % 8 & std::byte{1}) != std::byte{0};
    if (is_exact) exact.Add(place, shape.dtype);
    ++index;
    return true;
  });
  return exact;
}

KeyBytes RoundedKeys(const ExtentShape& shape, const RoundedHeader& header,
                     const ExactRows& exact) {
  const RoundedParts parts = RoundedPartsOf(shape, header);
  const size_t shared = parts.ExactRowsAt() + sizeof(uint32_t);
  return {.bytes = shared / 2 + exact.bytes[0] + (header.key_bits + 7) / 8,
          .escapes = exact.rows[0],
          .all_escapes = exact.rows[0] + exact.rows[1]};
}

}  // namespace tandem::codec
