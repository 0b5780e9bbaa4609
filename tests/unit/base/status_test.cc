#include "base/status.h"

#include <memory>
#include <string>

#include "gtest/gtest.h"

namespace tandem::status_test {
namespace {

absl::StatusOr<int> Half(int number) {
  if (number % 2 != 0) return InvalidArgument("{} is odd", number);
  return number / 2;
}

absl::Status AddQuarter(int number, int& sum) {
  ASSIGN_OR_RETURN(const int half, Half(number));
  ASSIGN_OR_RETURN(const int quarter, Half(half));
  sum += quarter;
  return absl::OkStatus();
}

absl::Status AddQuarters(int first, int second, int& sum) {
  RETURN_IF_ERROR(AddQuarter(first, sum));
  RETURN_IF_ERROR(AddQuarter(second, sum));
  return absl::OkStatus();
}

TEST(Status, BuildersFormatAndCarryTheirCode) {
  EXPECT_EQ(InvalidArgument("{} of {}", 1, 2), absl::InvalidArgumentError("1 of 2"));
  EXPECT_EQ(NotFound("x").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ResourceExhausted("x").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Unavailable("x").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(FailedPrecondition("x").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(DataLoss("x").code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(DeadlineExceeded("x").code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Cancelled("x").code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(Unimplemented("x").code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(Internal("x").code(), absl::StatusCode::kInternal);
}

TEST(Status, AnnotatePutsTheContextFirst) {
  EXPECT_EQ(Annotate(NotFound("no file"), "models/x"), absl::NotFoundError("models/x: no file"));
  EXPECT_TRUE(Annotate(absl::OkStatus(), "models/x").ok());
}

TEST(Status, MacrosStopAtTheFirstError) {
  int sum = 0;
  EXPECT_TRUE(AddQuarters(8, 12, sum).ok());
  EXPECT_EQ(sum, 5);
  EXPECT_EQ(AddQuarters(4, 6, sum), absl::InvalidArgumentError("3 is odd"));
  EXPECT_EQ(sum, 6);
  EXPECT_EQ(AddQuarters(1, 4, sum), absl::InvalidArgumentError("1 is odd"));
  EXPECT_EQ(sum, 6);
}

absl::StatusOr<std::unique_ptr<int>> Make() { return std::make_unique<int>(7); }

absl::StatusOr<int> Take() {
  ASSIGN_OR_RETURN(const std::unique_ptr<int> made, Make());
  return *made;
}

TEST(Status, AssignMovesWhatCannotBeCopied) { EXPECT_EQ(*Take(), 7); }

}  // namespace
}  // namespace tandem::status_test
