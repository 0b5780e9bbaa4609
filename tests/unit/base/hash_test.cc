#include "base/hash.h"

#include <string_view>

#include "gtest/gtest.h"

namespace tandem::hash_test {
namespace {

uint64_t HashOf(std::string_view text, uint64_t seed = 0) {
  return Hash64(std::as_bytes(std::span(text.data(), text.size())), seed);
}

// Fingerprints and checksums go over the wire: every build must give the same ones. The first value
// is the published one of the empty input.
TEST(Hash64, IsXxh3) {
  EXPECT_EQ(HashOf(""), 0x2d06800538d394c2U);
  EXPECT_EQ(HashOf("tandem"), 0x9d9902d652a891e0U);
}

TEST(Hash64, DependsOnEveryByteAndOnTheSeed) {
  EXPECT_NE(HashOf("abc"), HashOf("abd"));
  EXPECT_NE(HashOf("abc"), HashOf(std::string_view("abc\0", 4)));
  EXPECT_NE(HashOf("abc", 1), HashOf("abc", 2));
}

}  // namespace
}  // namespace tandem::hash_test
