#include <algorithm>
#include <cmath>
#include <cstring>

#include "fmt/format.h"
#include "tests/support/ops_fixture.h"
#include "tests/support/reference_ops.h"

// KV of one type and block size that becomes that of the pool's: every value stays what it is, and
// nothing beside the tokens that are converted changes.

namespace tandem::ops_convert_kv_test {
namespace {

class ConvertKvTest : public OpsTest {
 protected:
  static constexpr int32_t kHeads = 2;
  static constexpr int32_t kPlanes = 2 * kHeads;
  static constexpr int32_t kHeadDim = 24;

  static KvPoolView View(std::byte* data, DType dtype, int32_t block_tokens, int32_t num_blocks) {
    return {.data = data,
            .dtype = dtype,
            .num_layers = 1,
            .num_blocks = num_blocks,
            .num_kv_heads = kHeads,
            .block_tokens = block_tokens,
            .head_dim = kHeadDim};
  }

  // Element `i` of a token, in elements from the data of `view`.
  static int64_t IndexOf(const KvPoolView& view, int32_t block, int32_t plane, int32_t token,
                         int32_t i) {
    return ((int64_t{block} * kPlanes + plane) * view.block_tokens + token) * kHeadDim + i;
  }

  // One extent after the other.
  static std::span<const std::byte> ExtentOf(const DeviceArray& memory, const KvPoolView& view,
                                             int32_t block) {
    const auto bytes = static_cast<size_t>(view.ExtentBytes());
    return {static_cast<const std::byte*>(memory.data()) + block * bytes, bytes};
  }

  void Convert(const ConvertKvArgs& args) {
    ASSERT_EQ(ops().ConvertKv(stream(), args), absl::OkStatus());
    ASSERT_EQ(stream().Synchronize(), absl::OkStatus());
  }
};

// All that there are, as many extents as they take.
TEST_P(ConvertKvTest, EveryValueStaysWhatItIs) {
  for (const auto& [from, to] : {std::pair(DType::kF8E4M3, DType::kBF16),
                                 {DType::kF8E4M3, DType::kF16},
                                 {DType::kF8E4M3, DType::kF32},
                                 {DType::kBF16, DType::kF32},
                                 {DType::kF16, DType::kF32}}) {
    SCOPED_TRACE(std::string(Name(from)) + " to " + std::string(Name(to)));
    const int64_t width = SizeOf(from);
    const int64_t extent = kPlanes * 8 * kHeadDim;
    const auto extents = static_cast<int32_t>(((int64_t{1} << (8 * width)) + extent - 1) / extent);
    std::vector<std::byte> values(static_cast<size_t>(extents * extent * width));
    for (int64_t i = 0; i < extents * extent; ++i) {
      std::memcpy(values.data() + i * width, &i, static_cast<size_t>(width));
    }
    const DeviceArray sources = ToDevice(values);
    const DeviceArray memory = NewOutput(extents * extent, to);
    const KvPoolView source = View(nullptr, from, 8, extents);
    std::vector<KvRun> runs;
    for (int32_t block = 0; block < extents; ++block) {
      runs.push_back({.src = ExtentOf(sources, source, block), .dst = {0, block}, .num_tokens = 8});
    }
    Convert({.pool = View(static_cast<std::byte*>(memory.data()), to, 8, extents),
             .src_dtype = from,
             .src_block_tokens = 8,
             .runs = runs});
    const std::vector<std::byte> converted = memory.Download<std::byte>();
    for (int64_t i = 0; i < extents * extent; ++i) {
      const double before = reference::Load(from, values.data(), i);
      const double after = reference::Load(to, converted.data(), i);
      if (std::isnan(before)) {
        ASSERT_TRUE(std::isnan(after)) << i;
      } else {
        ASSERT_EQ(before, after) << i;
        ASSERT_EQ(std::signbit(before), std::signbit(after)) << i;
      }
    }
  }
}

struct Sizes {
  int32_t from;  // tokens of a block
  int32_t to;
  int32_t num_runs;  // each in an extent and a block of its own; 200 are more than a launch takes
};

// Runs of any length and place: they come to their places, and nothing else changes.
TEST_P(ConvertKvTest, TokensFindTheirPlacesAndTheOthersStay) {
  const DType widths[][2] = {{DType::kF8E4M3, DType::kF8E4M3},
                             {DType::kF16, DType::kF16},
                             {DType::kF32, DType::kF32},
                             {DType::kF8E4M3, DType::kF32}};
  for (const auto& [from, to] : widths) {
    for (const Sizes& size :
         {Sizes{8, 8, 200}, {8, 16, 20}, {16, 8, 20}, {256, 8, 2}, {8, 256, 2}}) {
      SCOPED_TRACE(fmt::format("{} of {} to {} of {}", size.from, Name(from), size.to, Name(to)));
      const KvPoolView source = View(nullptr, from, size.from, size.num_runs);
      std::vector<float> values(
          static_cast<size_t>(size.num_runs * source.ExtentBytes() / SizeOf(from)));
      for (float& value : values) value = static_cast<float>(rng_() % 31) - 15;
      const DeviceArray sources = ToDeviceAs(from, values);
      std::vector<float> expected(static_cast<size_t>(size.num_runs) * kPlanes * size.to * kHeadDim,
                                  7.5f);
      const DeviceArray memory = ToDeviceAs(to, expected);
      const KvPoolView pool =
          View(static_cast<std::byte*>(memory.data()), to, size.to, size.num_runs);
      std::vector<KvRun> runs;
      for (int32_t i = 0; i < size.num_runs; ++i) {
        const int32_t tokens = 1 + i * 7 % std::min(size.from, size.to);
        const KvRun run = {.src = ExtentOf(sources, source, i),
                           .src_token = i * 5 % (size.from - tokens + 1),
                           .dst = {0, size.num_runs - 1 - i},
                           .dst_token = i * 3 % (size.to - tokens + 1),
                           .num_tokens = tokens};
        runs.push_back(run);
        for (int32_t at = 0; at < kPlanes * tokens * kHeadDim; ++at) {
          const int32_t plane = at / kHeadDim / tokens;
          const int32_t token = at / kHeadDim % tokens;
          const int64_t place =
              IndexOf(pool, run.dst.block, plane, run.dst_token + token, at % kHeadDim);
          expected[static_cast<size_t>(place)] = values[static_cast<size_t>(
              IndexOf(source, i, plane, run.src_token + token, at % kHeadDim))];
        }
      }
      Convert({.pool = pool, .src_dtype = from, .src_block_tokens = size.from, .runs = runs});
      EXPECT_EQ(memory.Floats(to), expected);
    }
  }
}

TANDEM_INSTANTIATE_OPS_TEST(ConvertKvTest);

}  // namespace
}  // namespace tandem::ops_convert_kv_test
