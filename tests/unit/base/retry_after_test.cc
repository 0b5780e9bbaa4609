#include "base/retry_after.h"

#include <optional>

#include "gtest/gtest.h"

namespace tandem::retry_after_test {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST(RetryAfterTest, TravelsInsideTheStatus) {
  absl::Status status = absl::ResourceExhaustedError("full");
  EXPECT_EQ(RetryAfter(status), std::nullopt);
  SetRetryAfter(status, milliseconds(1500));
  EXPECT_EQ(RetryAfter(status), milliseconds(1500));
  SetRetryAfter(status, milliseconds(0));
  EXPECT_EQ(RetryAfter(status), milliseconds(0));
}

TEST(RetryAfterTest, IsNoLongerThanADay) {
  absl::Status status = absl::ResourceExhaustedError("full");
  SetRetryAfter(status, milliseconds::max());
  EXPECT_EQ(RetryAfter(status), hours(24));
  SetRetryAfter(status, milliseconds(-1));
  EXPECT_EQ(RetryAfter(status), milliseconds(0));
}

TEST(RetryAfterTest, ReadsNumbersAlone) {
  EXPECT_EQ(ParseRetryAfter("0"), milliseconds(0));
  EXPECT_EQ(ParseRetryAfter("250"), milliseconds(250));
  EXPECT_EQ(ParseRetryAfter("86400000"), hours(24));
  for (const char* text : {"", " 1", "1 ", "+1", "-1", "1.5", "1e3", "0x10", "ten", "86400001",
                           "9223372036854775807", "9223372036854775808"}) {
    EXPECT_EQ(ParseRetryAfter(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace tandem::retry_after_test
