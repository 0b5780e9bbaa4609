#include "server/services/message_limit.h"

#include <string>

#include "gtest/gtest.h"

namespace tandem::message_limit_test {
namespace {

TEST(MessageLimitTest, WhatGrpcRefusesIsExplainedWithTheSizeTheLimitAndTheFlag) {
  const auto read = ReadTooLarge("Received message larger than max (9437240 vs. 8388608)");
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(*read, RequestTooLarge(9437240, 4194304));
  EXPECT_EQ(read->code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(read->message()),
            "the request has 9437240 bytes; at most 4194304 are taken (--max-message-bytes of the "
            "router)");
}

TEST(MessageLimitTest, AnyOtherMessageIsLeftAlone) {
  for (const char* message :
       {"", "too many requests wait", "Received message larger than max (",
        "Received message larger than max ()", "Received message larger than max (1 vs. )",
        "Received message larger than max (a vs. b)", "Received message larger than max (1)",
        "Received message larger than max (1 vs. 2",
        "Received message larger than max (1 vs. 2 vs. 3)"}) {
    EXPECT_FALSE(ReadTooLarge(message).has_value()) << message;
  }
}

}  // namespace
}  // namespace tandem::message_limit_test
