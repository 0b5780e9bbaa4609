#include "kvstore/tier/store_block.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "fmt/format.h"
#include "gtest/gtest.h"

namespace tandem::store_block_test {
namespace {

KvLayout TwoLayers() {
  return {.num_layers = 2, .num_kv_heads = 1, .head_dim = 8, .block_tokens = 8};
}

constexpr StoreBlockName kName = {
    .layout_fingerprint = 0x0123456789abcdef, .chained_hash = 0xfeedface, .num_blocks = 3};

std::string Hex(std::span<const std::byte> bytes) {
  std::string hex;
  for (const std::byte b : bytes) hex += fmt::format("{:02x}", std::to_integer<int>(b));
  return hex;
}

class StoreBlockTest : public ::testing::Test {
 protected:
  StoreBlockTest() : slab_(shape_.total_bytes()) {
    for (size_t i = 0; i < slab_.size(); ++i) slab_[i] = static_cast<std::byte>(i * 7 + i / 256);
    SealStoreBlock(shape_, kName, slab_);
  }

  std::span<std::byte> header() { return std::span(slab_).first(StoreHeaderBytes(2)); }

  // The header, changed, with the right hash.
  absl::Status ParseChanged(const std::function<void(std::span<std::byte>)>& change) {
    std::vector<std::byte> bytes(header().begin(), header().end());
    change(bytes);
    const uint64_t hash = Hash64(std::span(bytes).first(bytes.size() - sizeof(uint64_t)));
    std::memcpy(bytes.data() + bytes.size() - sizeof(hash), &hash, sizeof(hash));
    return ParseStoreBlockHeader(bytes).status();
  }

  const StoreBlockShape shape_{TwoLayers()};
  std::vector<std::byte> slab_;
};

TEST_F(StoreBlockTest, SlicesBeginAtPages) {
  EXPECT_EQ(shape_.num_blocks(), 16);
  EXPECT_EQ(shape_.total_bytes(), 3u * 4096);
  EXPECT_EQ(shape_.Extent(slab_, 0, 0).data() - slab_.data(), 4096);
  EXPECT_EQ(shape_.Extent(slab_, 0, 1).data() - slab_.data(), 4096 + 256);
  EXPECT_EQ(shape_.Extent(slab_, 1, 15).data() - slab_.data(), 2 * 4096 + 15 * 256);
  EXPECT_EQ(shape_.Slice(slab_, 1, 3).size(), 3u * 256);

  KvLayout large = TwoLayers();
  large.block_tokens = 256;
  large.num_layers = 600;
  EXPECT_EQ(StoreBlockShape(large).num_blocks(), 1) << "at least one block";
  EXPECT_EQ(StoreBlockShape(large).total_bytes(), 8192u + 600 * 8192u);
}

// The example of docs/kv_store_block.md: these bytes do not change without a new version.
TEST_F(StoreBlockTest, BytesOfTheHeader) {
  const StoreBlockHeader example = {.layout_fingerprint = 0x0123456789abcdef,
                                    .chained_hash = 0x1122334455667788,
                                    .tokens = 48,
                                    .checksums = {0xaaaaaaaaaaaaaaaa, 0xbbbbbbbbbbbbbbbb}};
  std::vector<std::byte> bytes(StoreHeaderBytes(2));
  EncodeStoreBlockHeader(example, bytes);
  EXPECT_EQ(Hex(bytes),
            "5444533101000000"
            "efcdab8967452301"
            "8877665544332211"
            "3000000002000000"
            "aaaaaaaaaaaaaaaa"
            "bbbbbbbbbbbbbbbb"
            "0ad4dca5ed7027c8");
  const auto parsed = ParseStoreBlockHeader(bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, example);
}

TEST_F(StoreBlockTest, WhatWasSealedIsVerified) {
  EXPECT_EQ(VerifyStoreBlock(shape_, kName, slab_), absl::OkStatus());
  const auto parsed = ParseStoreBlockHeader(slab_);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->tokens, 24u);
  EXPECT_EQ(parsed->checksums[1], Hash64(shape_.Slice(slab_, 1, 3)));
}

TEST_F(StoreBlockTest, EveryByteThatMattersIsCovered) {
  for (size_t at = 0; at < slab_.size(); at += at < 64 ? 1 : 61) {
    const bool in_header = at < header().size();
    const bool in_use = at >= 4096 && (at - 4096) % 4096 < 3 * 256;
    slab_[at] ^= std::byte{16};
    EXPECT_EQ(VerifyStoreBlock(shape_, kName, slab_).ok(), !in_header && !in_use) << at;
    slab_[at] ^= std::byte{16};
  }
}

TEST_F(StoreBlockTest, AnotherStoreBlockIsNotThisOne) {
  const auto verify = [&](StoreBlockName name) {
    return VerifyStoreBlock(shape_, name, slab_).code();
  };
  EXPECT_EQ(verify({kName.layout_fingerprint + 1, kName.chained_hash, 3}),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(verify({kName.layout_fingerprint, kName.chained_hash + 1, 3}),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(verify({kName.layout_fingerprint, kName.chained_hash, 2}), absl::StatusCode::kDataLoss);
}

TEST_F(StoreBlockTest, RefusesWhatItDoesNotKnow) {
  using absl::StatusCode;
  const auto set = [](size_t at, uint8_t value) {
    return [=](std::span<std::byte> bytes) { bytes[at] = std::byte{value}; };
  };
  EXPECT_EQ(ParseChanged([](auto) {}), absl::OkStatus());
  EXPECT_EQ(ParseChanged(set(0, 0)).code(), StatusCode::kDataLoss);
  EXPECT_EQ(ParseChanged(set(4, 2)).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(ParseChanged(set(6, 2)), absl::OkStatus()) << "mask-rice";
  EXPECT_EQ(ParseChanged(set(6, 3)).code(), StatusCode::kInvalidArgument) << "codec";
  EXPECT_EQ(ParseChanged(set(7, 1)).code(), StatusCode::kInvalidArgument) << "reserved";
  EXPECT_EQ(ParseChanged(set(24, 0)).code(), StatusCode::kInvalidArgument) << "no tokens";
  EXPECT_EQ(ParseChanged(set(26, 1)).code(), StatusCode::kInvalidArgument) << "65,536 tokens";
  EXPECT_EQ(ParseChanged(set(28, 0)).code(), StatusCode::kDataLoss) << "no layers";
  EXPECT_EQ(ParseChanged(set(28, 3)).code(), StatusCode::kDataLoss) << "more than are there";
  EXPECT_EQ(ParseChanged(set(31, 255)).code(), StatusCode::kDataLoss);
}

TEST_F(StoreBlockTest, RefusesEveryShortHeader) {
  for (size_t size = 0; size < header().size(); ++size) {
    EXPECT_EQ(ParseStoreBlockHeader(header().first(size)).status().code(),
              absl::StatusCode::kDataLoss);
  }
}

}  // namespace
}  // namespace tandem::store_block_test
