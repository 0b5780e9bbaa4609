#include "kvstore/kv_layout.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::kv_layout_test {
namespace {

using ::testing::HasSubstr;

KvLayout SixLayers() {
  return {.num_layers = 6, .num_kv_heads = 3, .head_dim = 64, .block_tokens = 16};
}

TEST(KvLayoutTest, SizesFollowFromTheFields) {
  const KvLayout layout = SixLayers();
  EXPECT_EQ(layout.Validate(), absl::OkStatus());
  EXPECT_EQ(layout.ExtentBytes(), 2 * 3 * 16 * 64 * 2);
  EXPECT_EQ(layout.BlockBytes(), 6 * layout.ExtentBytes());
  EXPECT_EQ(layout.BytesPerToken(), 6 * 2 * 3 * 64 * 2);
  EXPECT_EQ(layout.BlocksFor(0), 0);
  EXPECT_EQ(layout.BlocksFor(1), 1);
  EXPECT_EQ(layout.BlocksFor(16), 1);
  EXPECT_EQ(layout.BlocksFor(17), 2);
}

TEST(KvLayoutTest, EightBitKvTakesHalfTheMemory) {
  KvLayout layout = SixLayers();
  layout.dtype = DType::kF8E4M3;
  EXPECT_EQ(layout.Validate(), absl::OkStatus());
  EXPECT_EQ(2 * layout.BlockBytes(), SixLayers().BlockBytes());
  std::byte base{};
  const KvPoolView view = layout.PoolView(&base, 10);
  EXPECT_EQ(view.dtype, DType::kF8E4M3);
  EXPECT_EQ(view.k_scale, 1);
  EXPECT_EQ(view.v_scale, 1);
}

TEST(KvLayoutTest, QuantisedKvTakesItsBitsAndAScalePerGroup) {
  const auto bytes_per_token = [](DType dtype) {
    KvLayout layout = SixLayers();
    layout.dtype = dtype;
    EXPECT_EQ(layout.Validate(), absl::OkStatus());
    EXPECT_EQ(layout.ExtentBytes() % 16, 0);
    return layout.BytesPerToken() / (layout.num_layers * layout.num_kv_heads);
  };
  EXPECT_EQ(bytes_per_token(DType::kK8V8), 2 * (64 + 2));
  EXPECT_EQ(bytes_per_token(DType::kK6V5), 48 + 2 + 40 + 2);
  EXPECT_EQ(bytes_per_token(DType::kK4V3), 32 + 2 + 24 + 2);
}

TEST(KvLayoutTest, PoolViewAgreesOnTheExtent) {
  for (const DType dtype : {DType::kBF16, DType::kK6V5}) {
    KvLayout layout = SixLayers();
    layout.dtype = dtype;
    std::byte base{};
    const KvPoolView view = layout.PoolView(&base, 10);
    EXPECT_EQ(view.ExtentBytes(), layout.ExtentBytes());
    EXPECT_EQ(view.Extent(2, 3) - view.Extent(0, 0), (2 * 10 + 3) * layout.ExtentBytes());
  }
}

TEST(KvLayoutTest, EachFieldIsChecked) {
  const auto refused = [](auto change, const char* text) {
    KvLayout layout = SixLayers();
    change(layout);
    const absl::Status status = layout.Validate();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  };
  refused([](KvLayout& l) { l.num_layers = 0; }, "num_layers=0");
  refused([](KvLayout& l) { l.num_kv_heads = -1; }, "num_kv_heads=-1");
  refused([](KvLayout& l) { l.head_dim = 2048; }, "head_dim=2048");
  refused([](KvLayout& l) { l.dtype = DType::kK4V3, l.head_dim = 80; }, "head_dim=80");
  refused([](KvLayout& l) { l.dtype = DType::kK4V3, l.head_dim = 80; }, "dtype=k4v3");
  refused([](KvLayout& l) { l.head_dim = 20; }, "head_dim=20");
  refused([](KvLayout& l) { l.block_tokens = 4; }, "block_tokens=4");
  refused([](KvLayout& l) { l.block_tokens = 24; }, "block_tokens=24");
  refused([](KvLayout& l) { l.block_tokens = 512; }, "block_tokens=512");
  refused([](KvLayout& l) { l.dtype = DType::kI32; }, "dtype=i32");
  refused(
      [](KvLayout& l) {
        l.num_kv_heads = 512;
        l.head_dim = 256;
        l.block_tokens = 256;
      },
      "134217728 bytes");
}

TEST(KvLayoutTest, FingerprintTellsEveryDifference) {
  const KvLayout layout = SixLayers();
  std::set<uint64_t> prints = {layout.Fingerprint(1), layout.Fingerprint(2)};
  const auto add = [&](auto change) {
    KvLayout other = SixLayers();
    change(other);
    prints.insert(other.Fingerprint(1));
  };
  add([](KvLayout& l) { l.num_layers = 3; });
  add([](KvLayout& l) { l.num_kv_heads = 6; });
  add([](KvLayout& l) { l.head_dim = 16; });
  add([](KvLayout& l) { l.block_tokens = 64; });
  add([](KvLayout& l) { l.dtype = DType::kF16; });
  add([](KvLayout& l) { l.dtype = DType::kF8E4M3; });
  add([](KvLayout& l) { l.dtype = DType::kK8V8; });
  EXPECT_EQ(prints.size(), 9u);
  EXPECT_EQ(layout.Fingerprint(1), SixLayers().Fingerprint(1));
}

}  // namespace
}  // namespace tandem::kv_layout_test
