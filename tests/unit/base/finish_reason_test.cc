#include "base/finish_reason.h"

#include <vector>

#include "gtest/gtest.h"

namespace tandem::finish_reason_test {
namespace {

TEST(StopReasonTest, AStopTokenDecidesBeforeTheLength) {
  const std::vector<int32_t> stops = {2, 7};
  EXPECT_EQ(StopReasonOf(stops, 3, 5, 1), FinishReason::kNone);
  EXPECT_EQ(StopReasonOf(stops, 3, 5, 2), FinishReason::kNone);
  EXPECT_EQ(StopReasonOf(stops, 3, 5, 3), FinishReason::kLength);
  EXPECT_EQ(StopReasonOf(stops, 3, 7, 1), FinishReason::kStop);
  EXPECT_EQ(StopReasonOf(stops, 3, 2, 3), FinishReason::kStop);
  EXPECT_EQ(StopReasonOf(std::vector<int32_t>{}, 1, 2, 1), FinishReason::kLength);
}

}  // namespace
}  // namespace tandem::finish_reason_test
