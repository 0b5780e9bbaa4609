#include "server/services/status_mapping.h"

#include "base/status.h"
#include "gtest/gtest.h"

namespace tandem::status_mapping_test {
namespace {

TEST(StatusMappingTest, EveryCodeSurvivesTheRoundTrip) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    const absl::Status back = ToAbslStatus(ToGrpcStatus(status));
    EXPECT_EQ(back, status) << code;
  }
}

TEST(StatusMappingTest, MessagesAreWholeUtf8AndBounded) {
  const grpc::Status status = ToGrpcStatus(Internal("{}", std::string(5000, 'x') + "\xff"));
  EXPECT_EQ(status.error_message().size(), 2048u);
  EXPECT_EQ(ToGrpcStatus(Internal("a\xff")).error_message(), "a\xef\xbf\xbd");
}

}  // namespace
}  // namespace tandem::status_mapping_test
