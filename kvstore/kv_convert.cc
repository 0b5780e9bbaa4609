#include "kvstore/kv_convert.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/status.h"

namespace tandem {
namespace {

bool Widens(DType from, DType to) {
  if (from == to) return true;
  switch (from) {
    case DType::kF8E4M3:
      return to == DType::kF16 || to == DType::kBF16 || to == DType::kF32;
    case DType::kF16:
    case DType::kBF16:
      return to == DType::kF32;
    default:
      return false;
  }
}

absl::Status SameField(std::string_view field, int32_t from, int32_t to) {
  if (from == to) return absl::OkStatus();
  return FailedPrecondition(
      "KV with {}={} cannot be kept with {}={}: serve the same model on both workers", field, from,
      field, to);
}

// Sign, then `exponent_bits`, then `mantissa_bits`; no infinity where the largest exponent is an
// ordinary one (e4m3).
struct Format {
  int mantissa_bits;
  int exponent_bits;
  bool has_infinity;
};
constexpr Format kE4M3 = {.mantissa_bits = 3, .exponent_bits = 4, .has_infinity = false};
constexpr Format kHalf = {.mantissa_bits = 10, .exponent_bits = 5, .has_infinity = true};

// The same value as f32, in bits. Integers alone: the mode of the floating-point unit may flush
// small numbers.
constexpr uint32_t FloatBits(uint32_t bits, const Format& format) {
  const int width = 1 + format.exponent_bits + format.mantissa_bits;
  const uint32_t sign = (bits >> (width - 1)) << 31;
  const uint32_t max_exponent = (1u << format.exponent_bits) - 1;
  const uint32_t max_mantissa = (1u << format.mantissa_bits) - 1;
  const int bias = static_cast<int>(max_exponent >> 1);
  uint32_t exponent = (bits >> format.mantissa_bits) & max_exponent;
  uint32_t mantissa = bits & max_mantissa;
  const uint32_t shift = static_cast<uint32_t>(23 - format.mantissa_bits);
  if (exponent == max_exponent && (format.has_infinity || mantissa == max_mantissa)) {
    return sign | 0x7f800000u | mantissa << shift;
  }
  if (exponent == 0) {
    if (mantissa == 0) return sign;
    const int lead = std::bit_width(mantissa) - 1;  // 2^lead is its first bit
    const int up = format.mantissa_bits - lead;
    mantissa = (mantissa << up) & max_mantissa;
    return sign | static_cast<uint32_t>(127 - bias + 1 - up) << 23 | mantissa << shift;
  }
  return sign | static_cast<uint32_t>(127 - bias + static_cast<int>(exponent)) << 23 |
         mantissa << shift;
}

// Of a value that f16 holds as a normal number, as all of e4m3 are; or 0 or NaN.
constexpr uint16_t HalfBits(uint32_t float_bits) {
  const auto sign = static_cast<uint16_t>(float_bits >> 16 & 0x8000u);
  const uint32_t magnitude = float_bits & 0x7fffffffu;
  if (magnitude == 0) return sign;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  return static_cast<uint16_t>(sign | ((magnitude >> 13) - ((127u - 15u) << 10)));
}

template <typename To, typename Make>
constexpr std::array<To, 256> TableOfE4M3(Make make) {
  std::array<To, 256> table{};
  for (uint32_t bits = 0; bits < 256; ++bits) table[bits] = make(FloatBits(bits, kE4M3));
  return table;
}

constexpr auto kE4M3AsF32 = TableOfE4M3<uint32_t>([](uint32_t bits) { return bits; });
// Four significant bits are kept in the upper half of an f32.
constexpr auto kE4M3AsBF16 =
    TableOfE4M3<uint16_t>([](uint32_t bits) { return static_cast<uint16_t>(bits >> 16); });
constexpr auto kE4M3AsF16 = TableOfE4M3<uint16_t>([](uint32_t bits) { return HalfBits(bits); });

template <typename From, typename To, typename Widen>
void WidenEach(const std::byte* from, size_t count, std::byte* to, Widen widen) {
  for (size_t i = 0; i < count; ++i) {
    From in;
    std::memcpy(&in, from + i * sizeof(From), sizeof(From));
    const To out = widen(in);
    std::memcpy(to + i * sizeof(To), &out, sizeof(To));
  }
}

void CopyElements(DType from_type, const std::byte* from, size_t count, DType to_type,
                  std::byte* to) {
  if (from_type == to_type) {
    std::memcpy(to, from, count * static_cast<size_t>(SizeOf(to_type)));
  } else if (from_type == DType::kBF16) {
    WidenEach<uint16_t, uint32_t>(from, count, to, [](uint32_t bits) { return bits << 16; });
  } else if (from_type == DType::kF16) {
    WidenEach<uint16_t, uint32_t>(from, count, to,
                                  [](uint32_t bits) { return FloatBits(bits, kHalf); });
  } else if (to_type == DType::kF32) {
    WidenEach<uint8_t, uint32_t>(from, count, to, [](uint8_t bits) { return kE4M3AsF32[bits]; });
  } else {
    const auto& table = to_type == DType::kBF16 ? kE4M3AsBF16 : kE4M3AsF16;
    WidenEach<uint8_t, uint16_t>(from, count, to, [&](uint8_t bits) { return table[bits]; });
  }
}

}  // namespace

absl::Status CanConvert(const KvLayout& from, const KvLayout& to) {
  RETURN_IF_ERROR(SameField("num_layers", from.num_layers, to.num_layers));
  RETURN_IF_ERROR(SameField("num_kv_heads", from.num_kv_heads, to.num_kv_heads));
  RETURN_IF_ERROR(SameField("head_dim", from.head_dim, to.head_dim));
  if (Widens(from.dtype, to.dtype)) return absl::OkStatus();
  return FailedPrecondition(
      "KV with dtype={} cannot be kept with dtype={} without changing its values: start the decode "
      "worker with dtype {} or f32, or the prefill worker with dtype {}",
      Name(from.dtype), Name(to.dtype), Name(from.dtype), Name(to.dtype));
}

// Numbers are only widened, so that what grows is the block.
int64_t LargestExtentBytesTo(const KvLayout& to) {
  KvLayout from = to;
  int64_t bytes = from.ExtentBytes();
  while (from.block_tokens *= 2, from.Validate().ok()) bytes = from.ExtentBytes();
  return bytes;
}

// Between two block bounds, the tokens of one K or V head lie side by side on both sides.
void ConvertExtent(const KvLayout& from, std::span<const std::byte> extent, int32_t block,
                   TokenSpan wanted, const KvLayout& to,
                   absl::FunctionRef<std::byte*(int32_t block)> place) {
  TANDEM_CHECK(std::ssize(extent) == from.ExtentBytes(), "an extent of another layout");
  const int32_t first = block * from.block_tokens;
  const int32_t end = std::min(wanted.end, first + from.block_tokens);
  const int64_t from_token = from.head_dim * SizeOf(from.dtype);
  const int64_t to_token = to.head_dim * SizeOf(to.dtype);
  for (int32_t begin = std::max(wanted.begin, first); begin < end;) {
    const int32_t there = begin / to.block_tokens;
    const int32_t until = std::min(end, (there + 1) * to.block_tokens);
    const auto elements = static_cast<size_t>(int64_t{until - begin} * to.head_dim);
    const std::byte* source = extent.data() + (begin - first) * from_token;
    std::byte* target = place(there) + (begin - there * to.block_tokens) * to_token;
    for (int32_t plane = 0; plane < 2 * from.num_kv_heads; ++plane) {
      CopyElements(from.dtype, source, elements, to.dtype, target);
      source += from.block_tokens * from_token;
      target += to.block_tokens * to_token;
    }
    begin = until;
  }
}

}  // namespace tandem
