#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/quantised_row.h"

namespace tandem::cpu {
namespace {

// A floating-point format: sign, then `exponent_bits`, then `mantissa_bits`. Without infinity the
// largest exponent is that of ordinary numbers (e4m3).
struct Format {
  int mantissa_bits;
  int exponent_bits;
  bool has_infinity;
};
constexpr Format kE4M3 = {.mantissa_bits = 3, .exponent_bits = 4, .has_infinity = false};
constexpr Format kHalf = {.mantissa_bits = 10, .exponent_bits = 5, .has_infinity = true};

// The f32 bits of the number that `bits` stand for. Integer arithmetic alone: the mode of the
// floating-point unit may flush small numbers to 0.
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
    const int lead = std::bit_width(mantissa) - 1;  // position of its first set bit
    const int up = format.mantissa_bits - lead;
    mantissa = (mantissa << up) & max_mantissa;
    return sign | static_cast<uint32_t>(127 - bias + 1 - up) << 23 | mantissa << shift;
  }
  return sign | static_cast<uint32_t>(127 - bias + static_cast<int>(exponent)) << 23 |
         mantissa << shift;
}

// The f16 bits of an f32 that is 0, NaN or a normal number of f16, as all e4m3 values are.
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
// bf16: the four significant bits of an e4m3 fit the upper half of an f32.
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

// Converts `count` elements to a type that has every value of the first one.
void WidenElements(DType from_type, const std::byte* from, size_t count, DType to_type,
                   std::byte* to) {
  if (from_type == DType::kBF16) {
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

// Some rows of one head, which lie one after the other.
struct Rows {
  int64_t count;
  int32_t head_dim;
};

void QuantiseRows(DType from_type, const std::byte* from, const Rows& rows, int32_t bits,
                  std::byte* to) {
  constexpr size_t kMostChannels = 256;
  float row[kMostChannels];
  const int64_t from_bytes = rows.head_dim * SizeOf(from_type);
  const int64_t to_bytes = rows.head_dim / kKvGroupChannels * KvGroupBytes(bits);
  for (int64_t i = 0; i < rows.count; ++i, from += from_bytes, to += to_bytes) {
    const auto channels = static_cast<size_t>(rows.head_dim);
    if (from_type == DType::kF32) {
      std::memcpy(row, from, channels * sizeof(float));
    } else {
      WidenElements(from_type, from, channels, DType::kF32, reinterpret_cast<std::byte*>(row));
    }
    QuantiseRow(row, rows.head_dim, bits, to);
  }
}

void CopyRows(const ConvertKvArgs& args, KvSide side, const std::byte* from, const Rows& rows,
              std::byte* to) {
  const DType to_type = args.pool.dtype;
  if (args.src_dtype == to_type) {
    std::memcpy(to, from, static_cast<size_t>(rows.count * args.pool.RowBytes(side)));
  } else if (IsQuantisedKv(to_type)) {
    QuantiseRows(args.src_dtype, from, rows, KvBits(to_type, side), to);
  } else {
    WidenElements(args.src_dtype, from, static_cast<size_t>(rows.count * rows.head_dim), to_type,
                  to);
  }
}

}  // namespace

absl::Status CpuOps::DoConvertKv(Stream&, const ConvertKvArgs& args) {
  const KvPoolView& pool = args.pool;
  const KvPoolView source = args.AsSource();
  for (const KvRun& run : args.runs) {
    std::byte* const extent = pool.Extent(run.dst.layer, run.dst.block);
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      for (int32_t head = 0; head < pool.num_kv_heads; ++head) {
        CopyRows(args, side, run.src.data() + source.RowAt(side, head, run.src_token),
                 {run.num_tokens, pool.head_dim}, extent + pool.RowAt(side, head, run.dst_token));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::cpu
