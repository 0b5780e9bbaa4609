#include "kvstore/tier/store_encoder.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/kvstore/codec/codec_data.h"

namespace tandem::store_encoder_test {
namespace {

constexpr KvLayout kEncodedLayout = {.num_layers = 2, .num_kv_heads = 2, .head_dim = 64};
constexpr int32_t kBlocks = 8;  // of a whole store block
constexpr StoreBlockName kEncodedName = {
    .layout_fingerprint = 0x0123456789abcdef, .chained_hash = 0xfeedface, .num_blocks = kBlocks};

using Bytes = std::vector<std::byte>;

class StoreEncoderTest : public testing::TestWithParam<CodecId> {
 protected:
  StoreEncoderTest() : encoder_(*StoreEncoder::Create(kEncodedLayout, GetParam())) {
    slab_.resize(encoder_->slab_bytes());
  }

  // A raw store block; `like_kv`: its values are distributed as those of a model.
  Bytes Raw(uint64_t seed, bool like_kv = true) const {
    const ExtentShape extent = {kEncodedLayout.dtype, kEncodedLayout.num_kv_heads,
                                kEncodedLayout.head_dim, kEncodedLayout.block_tokens};
    Bytes raw(shape_.total_bytes());
    for (int32_t layer = 0; layer < kEncodedLayout.num_layers; ++layer) {
      for (int32_t block = 0; block < kBlocks; ++block) {
        const auto one = static_cast<uint64_t>(100 * layer + block) + 1000 * seed;
        std::ranges::copy(like_kv ? LikeKv(extent, one) : RandomBits(extent, one),
                          shape_.Extent(raw, layer, block).begin());
      }
    }
    return raw;
  }
  void MakeTables() {
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      EXPECT_EQ(encoder_->Seal(kEncodedName, Raw(seed), slab_).code(),
                absl::StatusCode::kFailedPrecondition);
    }
  }
  absl::Status Open(const StoreBlockName& name) {
    back_.assign(shape_.total_bytes(), std::byte{0});
    return encoder_->Open(name, slab_, back_);
  }
  bool CameBack(const Bytes& raw, int32_t num_blocks) const {
    for (int32_t layer = 0; layer < kEncodedLayout.num_layers; ++layer) {
      if (!std::ranges::equal(shape_.Slice(raw, layer, num_blocks),
                              shape_.Slice(back_, layer, num_blocks))) {
        return false;
      }
    }
    return true;
  }

  const StoreBlockShape shape_{kEncodedLayout};
  const std::unique_ptr<StoreEncoder> encoder_;
  Bytes slab_;
  Bytes back_;
};

TEST_P(StoreEncoderTest, WhatWasEncodedComesBack) {
  MakeTables();
  EXPECT_EQ(encoder_->counts().unfit_blocks, 8 * kBlocks);
  EXPECT_EQ(encoder_->counts().stored_bytes, 0);
  const Bytes raw = Raw(20);
  ASSERT_EQ(encoder_->Seal(kEncodedName, raw, slab_), absl::OkStatus());
  ASSERT_EQ(Open(kEncodedName), absl::OkStatus());
  EXPECT_TRUE(CameBack(raw, kBlocks));
  const StoreEncoder::Counts counts = encoder_->counts();
  EXPECT_EQ(counts.raw_bytes, kBlocks * kEncodedLayout.BlockBytes());
  EXPECT_LE(counts.stored_bytes, static_cast<int64_t>(encoder_->slab_bytes()));
  EXPECT_GT(static_cast<double>(counts.raw_bytes) / static_cast<double>(counts.stored_bytes), 1.37);
}

TEST_P(StoreEncoderTest, APartOfAStoreBlockComesBack) {
  MakeTables();
  StoreBlockName part = kEncodedName;
  part.num_blocks = 3;
  const Bytes raw = Raw(20);
  ASSERT_EQ(encoder_->Seal(part, raw, slab_), absl::OkStatus());
  ASSERT_EQ(Open(part), absl::OkStatus());
  EXPECT_TRUE(CameBack(raw, 3));
  EXPECT_EQ(Open(kEncodedName).code(), absl::StatusCode::kDataLoss);
}

TEST_P(StoreEncoderTest, WhatDoesNotFitIsNotKept) {
  MakeTables();
  EXPECT_EQ(encoder_->Seal(kEncodedName, Raw(20, false), slab_).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(encoder_->counts().unfit_blocks, 9 * kBlocks);
  EXPECT_EQ(encoder_->counts().raw_bytes, 0);
}

TEST_P(StoreEncoderTest, DamageAndOtherNamesAreFound) {
  MakeTables();
  ASSERT_EQ(encoder_->Seal(kEncodedName, Raw(20), slab_), absl::OkStatus());
  const auto stored = static_cast<size_t>(encoder_->counts().stored_bytes);
  for (size_t at = 0; at < stored; at += at < 600 ? 1 : 331) {
    slab_[at] ^= std::byte{16};
    EXPECT_FALSE(Open(kEncodedName).ok()) << at;
    slab_[at] ^= std::byte{16};
  }
  ASSERT_EQ(Open(kEncodedName), absl::OkStatus());
  StoreBlockName other = kEncodedName;
  other.chained_hash += 1;
  EXPECT_EQ(Open(other).code(), absl::StatusCode::kDataLoss);
  std::ranges::fill(slab_, std::byte{0});
  EXPECT_EQ(Open(kEncodedName).code(), absl::StatusCode::kDataLoss);
}

// Each of the two frames is right in itself.
TEST_P(StoreEncoderTest, FramesThatChangedPlacesAreFound) {
  MakeTables();
  Bytes raw = Raw(20);
  const std::span<std::byte> second = shape_.Extent(raw, 0, 1);
  std::ranges::copy(shape_.Extent(raw, 0, 0), second.begin());
  second[0] ^= std::byte{1};  // a bit of a mantissa, so that the frames are as large
  ASSERT_EQ(encoder_->Seal(kEncodedName, raw, slab_), absl::OkStatus());
  const size_t at = StoreHeaderBytes(kEncodedLayout.num_layers);
  const size_t size = *FrameBytes(std::span(slab_).subspan(at));
  ASSERT_EQ(*FrameBytes(std::span(slab_).subspan(at + size)), size);
  const auto first = slab_.begin() + static_cast<ptrdiff_t>(at);
  std::swap_ranges(first, first + static_cast<ptrdiff_t>(size),
                   first + static_cast<ptrdiff_t>(size));
  EXPECT_EQ(Open(kEncodedName).code(), absl::StatusCode::kDataLoss);
}

TEST_P(StoreEncoderTest, ASlabIsSmallerThanARawOne) {
  EXPECT_LT(static_cast<double>(encoder_->slab_bytes()),
            0.8 * static_cast<double>(shape_.total_bytes()));
}

TEST_P(StoreEncoderTest, SmallExtentsAreRefused) {
  KvLayout small = kEncodedLayout;
  small.head_dim = 8;
  EXPECT_EQ(StoreEncoder::Create(small, GetParam()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(StoreEncoderTest, QuantisedKvIsRefused) {
  KvLayout layout = kEncodedLayout;
  layout.dtype = DType::kK8V8;
  layout.head_dim = 128;
  layout.block_tokens = 64;
  const absl::Status status = StoreEncoder::Create(layout, GetParam()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("k8v8"), absl::string_view::npos) << status;
}

INSTANTIATE_TEST_SUITE_P(Codecs, StoreEncoderTest,
                         testing::Values(CodecId::kF3, CodecId::kMaskRice), [](const auto& info) {
                           return info.param == CodecId::kF3 ? "f3" : "mask_rice";
                         });

}  // namespace
}  // namespace tandem::store_encoder_test
