#include "base/half_scale.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "gtest/gtest.h"
#include "tests/unit/kvstore/codec/codec_data.h"

namespace tandem::half_scale_test {
namespace {

// Every f16 that a scale can be is itself, and what lies between two becomes the larger.
TEST(HalfScaleTest, TheLeastHalfThatIsNotBelow) {
  for (uint16_t half = 0; half < kExactGroup; ++half) {
    const float value = FloatOfHalf(half);
    ASSERT_EQ(static_cast<double>(value), ValueOf<F16Fields>(half));
    ASSERT_EQ(HalfAtLeast(value), half);
    ASSERT_EQ(HalfAtLeast(std::nextafter(value, 1e9f)), half + 1);
  }
  EXPECT_EQ(HalfAtLeast(std::numeric_limits<float>::infinity()), kExactGroup);
  EXPECT_EQ(HalfAtLeast(std::numeric_limits<float>::quiet_NaN()), kExactGroup);
}

}  // namespace
}  // namespace tandem::half_scale_test
