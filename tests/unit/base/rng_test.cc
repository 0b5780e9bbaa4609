#include "base/rng.h"

#include <array>
#include <cstdint>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::rng_test {
namespace {

using testing::ElementsAre;

// The known answers of Random123 1.14 (kat_vectors, philox4x32 10).
TEST(Philox4x32, KnownAnswers) {
  EXPECT_THAT(Philox4x32(0, 0, 0), ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(Philox4x32(0xffffffffffffffff, 0xffffffffffffffff, 0xffffffffffffffff),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  // Key and counter are the digits of pi.
  EXPECT_THAT(Philox4x32(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(UniformAt, LiesInTheUnitInterval) {
  double sum = 0;
  constexpr int kDraws = 10'000;
  for (uint64_t position = 0; position < kDraws; ++position) {
    const double draw = UniformAt(42, position);
    ASSERT_GE(draw, 0.0);
    ASSERT_LT(draw, 1.0);
    sum += draw;
  }
  // Five standard deviations of the mean of 10,000 uniform draws.
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * 0.2887 / 100);
}

TEST(UniformAt, DependsOnSeedAndPosition) {
  EXPECT_EQ(UniformAt(1, 2), UniformAt(1, 2));
  EXPECT_NE(UniformAt(1, 2), UniformAt(1, 3));
  EXPECT_NE(UniformAt(1, 2), UniformAt(2, 2));
}

TEST(UniformAt, DependsOnEveryBitOfThePosition) {
  std::set<double> draws = {UniformAt(1, 0)};
  for (int bit = 0; bit < 64; ++bit) draws.insert(UniformAt(1, uint64_t{1} << bit));
  EXPECT_EQ(draws.size(), 65u);
}

}  // namespace
}  // namespace tandem::rng_test
