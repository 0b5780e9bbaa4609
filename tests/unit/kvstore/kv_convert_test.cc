#include "kvstore/kv_convert.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

KvLayout Layout(int32_t block_tokens, DType dtype) {
  return {.num_layers = 1,
          .num_kv_heads = 2,
          .head_dim = 8,
          .block_tokens = block_tokens,
          .dtype = dtype};
}

// The value that `bits` mean, from the definition of the format.
double ValueOf(DType dtype, uint32_t bits) {
  const bool bf16 = dtype == DType::kBF16;
  if (dtype == DType::kF32) return std::bit_cast<float>(bits);
  const int mantissa_bits = dtype == DType::kF8E4M3 ? 3 : bf16 ? 7 : 10;
  const int exponent_bits = dtype == DType::kF8E4M3 ? 4 : bf16 ? 8 : 5;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int max_exponent = (1 << exponent_bits) - 1;
  const int exponent = static_cast<int>(bits >> mantissa_bits) & max_exponent;
  const int mantissa = static_cast<int>(bits) & ((1 << mantissa_bits) - 1);
  const double sign = bits >> (mantissa_bits + exponent_bits) & 1 ? -1 : 1;
  if (dtype == DType::kF8E4M3) {
    if (exponent == 15 && mantissa == 7) return std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == max_exponent) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  const double ulp = std::ldexp(1.0, std::max(exponent, 1) - bias - mantissa_bits);
  const int units = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
  return sign * units * ulp;
}

uint32_t BitsAt(const std::vector<std::byte>& extent, size_t index, DType dtype) {
  const auto size = static_cast<size_t>(SizeOf(dtype));
  uint32_t bits = 0;
  std::memcpy(&bits, extent.data() + index * size, size);
  return bits;
}

using Widening = std::tuple<DType, DType>;
class WidenTest : public testing::TestWithParam<Widening> {};

// All values there are, through as many extents as they take.
TEST_P(WidenTest, EveryValueStaysWhatItIs) {
  const auto [from_type, to_type] = GetParam();
  const KvLayout from = Layout(8, from_type);
  const KvLayout to = Layout(8, to_type);
  ASSERT_EQ(CanConvert(from, to), absl::OkStatus());
  const auto width = static_cast<size_t>(SizeOf(from_type));
  const size_t per_extent = static_cast<size_t>(from.ExtentBytes()) / width;
  const size_t values = size_t{1} << (8 * width);
  for (size_t base = 0; base < values; base += per_extent) {
    std::vector<std::byte> in(static_cast<size_t>(from.ExtentBytes()));
    std::vector<std::byte> out(static_cast<size_t>(to.ExtentBytes()));
    for (size_t i = 0; i < per_extent; ++i) {
      const auto bits = static_cast<uint32_t>((base + i) % values);
      std::memcpy(in.data() + i * width, &bits, width);
    }
    ConvertExtent(from, in, 0, {0, 8}, to, [&](int32_t) { return out.data(); });
    for (size_t i = 0; i < per_extent; ++i) {
      const double before = ValueOf(from_type, BitsAt(in, i, from_type));
      const double after = ValueOf(to_type, BitsAt(out, i, to_type));
      if (std::isnan(before)) {
        ASSERT_TRUE(std::isnan(after)) << base + i;
      } else {
        ASSERT_EQ(before, after) << base + i;
        ASSERT_EQ(std::signbit(before), std::signbit(after)) << base + i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Exact, WidenTest,
                         testing::Values(Widening{DType::kF8E4M3, DType::kBF16},
                                         Widening{DType::kF8E4M3, DType::kF16},
                                         Widening{DType::kF8E4M3, DType::kF32},
                                         Widening{DType::kBF16, DType::kF32},
                                         Widening{DType::kF16, DType::kF32}));

TEST(CanConvertTest, NamesBothValuesOfWhatDiffers) {
  const KvLayout ours = Layout(16, DType::kBF16);
  EXPECT_EQ(CanConvert(Layout(64, DType::kBF16), ours), absl::OkStatus());
  const auto refused = [&](auto change, const char* first, const char* second) {
    KvLayout theirs = ours;
    change(theirs);
    const absl::Status status = CanConvert(theirs, ours);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr(first));
    EXPECT_THAT(std::string(status.message()), HasSubstr(second));
  };
  refused([](KvLayout& l) { l.num_layers = 3; }, "num_layers=3", "num_layers=1");
  refused([](KvLayout& l) { l.num_kv_heads = 4; }, "num_kv_heads=4", "num_kv_heads=2");
  refused([](KvLayout& l) { l.head_dim = 16; }, "head_dim=16", "head_dim=8");
  refused([](KvLayout& l) { l.dtype = DType::kF16; }, "dtype=f16", "dtype=bf16");
  refused([](KvLayout& l) { l.dtype = DType::kF32; }, "dtype=f32", "dtype=bf16");
}

struct Shape {
  int32_t from_tokens;
  int32_t to_tokens;
  TokenSpan wanted;
};

// What element (plane, token, i) of a sequence holds: all differ, none is what a place starts as.
uint16_t Element(int32_t plane, int32_t token, int32_t i) {
  return static_cast<uint16_t>(1 + (plane * 64 + token) * 8 + i);
}

size_t IndexOf(const KvLayout& layout, int32_t plane, int32_t token, int32_t i) {
  const int32_t row = plane * layout.block_tokens + token % layout.block_tokens;
  return static_cast<size_t>(row * layout.head_dim + i);
}

class BlockSizesTest : public testing::TestWithParam<Shape> {};

TEST_P(BlockSizesTest, EachTokenFindsItsPlaceAndTheOthersStay) {
  constexpr int32_t kTokens = 64;
  const auto [from_tokens, to_tokens, wanted] = GetParam();
  const KvLayout from = Layout(from_tokens, DType::kBF16);
  const KvLayout to = Layout(to_tokens, DType::kBF16);
  const auto place_size = static_cast<size_t>(to.ExtentBytes());
  std::vector<std::vector<std::byte>> places(kTokens / to_tokens,
                                             std::vector<std::byte>(place_size));
  for (int32_t block = kTokens / from_tokens - 1; block >= 0; --block) {
    std::vector<std::byte> extent(static_cast<size_t>(from.ExtentBytes()));
    for (int32_t plane = 0; plane < 4; ++plane) {
      for (int32_t token = block * from_tokens; token < (block + 1) * from_tokens; ++token) {
        for (int32_t i = 0; i < 8; ++i) {
          const uint16_t value = Element(plane, token, i);
          std::memcpy(extent.data() + 2 * IndexOf(from, plane, token, i), &value, 2);
        }
      }
    }
    ConvertExtent(from, extent, block, wanted, to,
                  [&](int32_t i) { return places[static_cast<size_t>(i)].data(); });
  }
  for (int32_t plane = 0; plane < 4; ++plane) {
    for (int32_t token = 0; token < kTokens; ++token) {
      const bool moved = token >= wanted.begin && token < wanted.end;
      for (int32_t i = 0; i < 8; ++i) {
        const auto& place = places[static_cast<size_t>(token / to_tokens)];
        EXPECT_EQ(BitsAt(place, IndexOf(to, plane, token, i), DType::kBF16),
                  moved ? Element(plane, token, i) : 0)
            << "plane " << plane << " token " << token;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, BlockSizesTest,
                         testing::Values(Shape{8, 8, {0, 64}}, Shape{8, 16, {0, 64}},
                                         Shape{8, 64, {16, 61}}, Shape{16, 8, {8, 64}},
                                         Shape{16, 64, {0, 50}}, Shape{32, 16, {16, 33}},
                                         Shape{64, 8, {24, 63}}, Shape{64, 32, {32, 64}}));

}  // namespace
}  // namespace tandem
