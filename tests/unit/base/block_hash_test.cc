#include "base/block_hash.h"

#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace tandem::block_hash_test {
namespace {

std::vector<int32_t> Tokens(size_t count) {
  std::vector<int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 1);
  return tokens;
}

std::vector<uint64_t> HashesOf(uint64_t root, const std::vector<int32_t>& tokens) {
  std::vector<uint64_t> hashes;
  ExtendBlockHashes(root, 4, tokens, hashes);
  return hashes;
}

// Routers and workers of different builds compare these values.
TEST(BlockHashTest, ValuesAreTheSameInEveryBuild) {
  const uint64_t root = PrefixRootHash(7, "alice");
  EXPECT_EQ(root, 0x5bc2676d8cc337afU);
  EXPECT_EQ(HashesOf(root, Tokens(9)),
            (std::vector<uint64_t>{0xf89fe2a9b000fa64U, 0x3c41d5faba2b01f5U}));
}

TEST(BlockHashTest, SaltAndFingerprintAndEveryEarlierTokenCount) {
  const std::vector<uint64_t> hashes = HashesOf(PrefixRootHash(7, "alice"), Tokens(12));
  std::vector<int32_t> changed = Tokens(12);
  changed[5] = 0;
  const std::vector<uint64_t> others = HashesOf(PrefixRootHash(7, "alice"), changed);
  EXPECT_EQ(others[0], hashes[0]);
  EXPECT_NE(others[1], hashes[1]);
  EXPECT_NE(others[2], hashes[2]);
  EXPECT_NE(HashesOf(PrefixRootHash(7, "bob"), Tokens(12))[0], hashes[0]);
  EXPECT_NE(HashesOf(PrefixRootHash(8, "alice"), Tokens(12))[0], hashes[0]);
}

TEST(BlockHashTest, AChainGrowsWithItsTokens) {
  std::vector<uint64_t> hashes = HashesOf(1, Tokens(5));
  EXPECT_EQ(hashes.size(), 1u);
  ExtendBlockHashes(1, 4, Tokens(12), hashes);
  EXPECT_EQ(hashes, HashesOf(1, Tokens(12)));
}

}  // namespace
}  // namespace tandem::block_hash_test
