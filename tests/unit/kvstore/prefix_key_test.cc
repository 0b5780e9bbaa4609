#include "kvstore/prefix_key.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace tandem::prefix_key_test {
namespace {

PrefixKey Key(uint64_t root) {
  return PrefixKey(std::make_shared<const PrefixRoot>(PrefixRoot{"", root}), 4);
}

TEST(PrefixKeyTest, OneHashPerFullBlock) {
  const PrefixKey key = Key(1);
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_EQ(key.Extend(std::span(tokens).first(3)).size(), 0u);
  const uint64_t first = key.Extend(std::span(tokens).first(4))[0];
  const auto both = key.Extend(tokens);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0], first) << "it grows";
  EXPECT_EQ(key.Extend(std::span(tokens).first(5)).size(), 1u) << "as asked for";
  EXPECT_EQ(key.hashes().size(), 2u);
}

TEST(PrefixKeyTest, AHashCoversAllBeforeIt) {
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<int32_t> others = {0, 2, 3, 4, 5, 6, 7, 8};
  const uint64_t hash = Key(1).Extend(tokens)[1];
  EXPECT_EQ(Key(1).Extend(tokens)[1], hash);
  EXPECT_NE(Key(1).Extend(others)[1], hash);
  EXPECT_NE(Key(2).Extend(tokens)[1], hash) << "model, layout and salt";
}

TEST(PrefixKeyTest, ACopyGrowsByItself) {
  const PrefixKey key = Key(1);
  std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  key.Extend(std::span(tokens).first(4));
  const PrefixKey fork = key;
  key.Extend(tokens);
  tokens[7] = 0;
  fork.Extend(tokens);
  EXPECT_EQ(fork.hashes()[0], key.hashes()[0]);
  EXPECT_NE(fork.hashes()[1], key.hashes()[1]);
}

}  // namespace
}  // namespace tandem::prefix_key_test
