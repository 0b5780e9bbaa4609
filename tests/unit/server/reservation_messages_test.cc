// Messages that agree on a hand-off: what a decode worker reads of a reservation, and what the prefill
// worker is told of the place where it may send.

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/services/worker_messages.h"

namespace tandem::reservation_messages_test {
namespace {

using std::chrono::microseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ToReserveRequestTest, CarriesEveryField) {
  v1::ReserveRequest request;
  request.set_request_id(7);
  for (const int id : {4, 5}) request.add_prompt(id);
  request.set_max_tokens(6);
  request.set_width(8);
  request.set_priority(1);
  const KvLayout layout = {
      .num_layers = 2, .num_kv_heads = 3, .head_dim = 64, .block_tokens = 32, .dtype = DType::kF16};
  *request.mutable_layout() = ToProto(layout);
  request.set_model_fingerprint(99);
  request.set_tenant("bob");
  request.set_cache_salt("pepper");
  const auto read = ToReserveRequest(request, kNoDeadline);
  ASSERT_TRUE(read.ok()) << read.status();
  const ReserveRequest& reserve = *read;
  EXPECT_EQ(reserve.id.value(), 7u);
  EXPECT_THAT(reserve.prompt, ElementsAre(4, 5));
  EXPECT_EQ(reserve.max_tokens, 6);
  EXPECT_EQ(reserve.width, 8);
  EXPECT_EQ(reserve.priority, 1);
  EXPECT_EQ(reserve.layout, layout);
  EXPECT_EQ(reserve.model_fingerprint, 99u);
  EXPECT_EQ(reserve.tenant, "bob");
  EXPECT_EQ(reserve.cache_salt, "pepper");
}

TEST(ToReserveRequestTest, ALayoutThatCannotBeIsRefused) {
  v1::ReserveRequest request;
  EXPECT_EQ(ToReserveRequest(request, kNoDeadline).status().code(),
            absl::StatusCode::kInvalidArgument);
  v1::KvLayout& layout = *request.mutable_layout();
  layout = ToProto(KvLayout{.num_layers = 2, .num_kv_heads = 3, .head_dim = 64});
  EXPECT_TRUE(ToReserveRequest(request, kNoDeadline).ok());
  layout.set_block_tokens(1 << 30);
  EXPECT_EQ(ToReserveRequest(request, kNoDeadline).status().code(),
            absl::StatusCode::kInvalidArgument);
}

v1::PrefillRequest PrefillOf(int32_t prompt_tokens) {
  v1::PrefillRequest request;
  for (int32_t i = 0; i < prompt_tokens; ++i) request.mutable_sequence()->add_prompt(i);
  request.mutable_target()->set_data_address("tcp:host:1");
  return request;
}

TEST(ToReserveResponseTest, WhatTheSenderIsTold) {
  const v1::ReserveResponse response = ToProto({.id = ReservationId(3),
                                                .epoch = 4,
                                                .cached_tokens = 48,
                                                .lease = std::chrono::seconds(3),
                                                .queued = microseconds(250)},
                                               "tcp:host:1");
  EXPECT_EQ(response.queued_us(), 250);
  v1::PrefillRequest prefill = PrefillOf(48);
  *prefill.mutable_target() = response.target();
  const auto target = ToHandoffTarget(prefill);
  ASSERT_TRUE(target.ok()) << target.status();
  EXPECT_EQ(target->data_address, "tcp:host:1");
  EXPECT_EQ(target->reservation.value(), 3u);
  EXPECT_EQ(target->epoch, 4u);
  EXPECT_EQ(target->cached_tokens, 48);
  EXPECT_EQ(target->lease, std::chrono::seconds(3));
}

// The target comes from another worker: refusing it as INVALID_ARGUMENT would blame the client.
// Both ends of what is allowed, and what is beyond them: the prompt less what is cached, and a
// lease in nanoseconds, are computed with.
TEST(ToHandoffTargetTest, CachedTokensAreOfThePrompt) {
  constexpr int32_t kLeast = std::numeric_limits<int32_t>::min();
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  v1::PrefillRequest request = PrefillOf(5);
  for (const auto& [cached, fine] : std::vector<std::pair<int32_t, bool>>{
           {kLeast, false}, {-1, false}, {0, true}, {5, true}, {6, false}, {kMost, false}}) {
    request.mutable_target()->set_cached_tokens(cached);
    const absl::Status status = ToHandoffTarget(request).status();
    EXPECT_EQ(status.ok(), fine) << cached;
    if (fine) continue;
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("cached_tokens=" + std::to_string(cached)));
  }
}

TEST(ToHandoffTargetTest, AnAddressThatIsNoneIsNotBlamedOnTheClient) {
  for (const char* const address : {"", "x", "tcp:", "tcp:host:1 tcp:host:2"}) {
    v1::PrefillRequest request = PrefillOf(5);
    request.mutable_target()->set_data_address(address);
    const absl::Status status = ToHandoffTarget(request).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << address << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("data_address"));
  }
}

TEST(ToHandoffTargetTest, LeasesAreBounded) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kDay = 24 * 60 * 60 * 1000;
  v1::PrefillRequest request = PrefillOf(5);
  for (const auto& [lease_ms, fine] :
       std::vector<std::pair<int64_t, bool>>{{kLeast, false},
                                             {-1, false},
                                             {0, true},
                                             {kDay, true},
                                             {kDay + 1, false},
                                             {kMost / 1000000, false},
                                             {kMost, false}}) {
    request.mutable_target()->set_lease_ms(lease_ms);
    const auto target = ToHandoffTarget(request);
    EXPECT_EQ(target.ok(), fine) << lease_ms;
    if (fine) {
      EXPECT_EQ(target->lease, std::chrono::milliseconds(lease_ms));
      continue;
    }
    EXPECT_TRUE(absl::IsFailedPrecondition(target.status())) << target.status();
    EXPECT_THAT(std::string(target.status().message()),
                HasSubstr("lease_ms=" + std::to_string(lease_ms)));
  }
}

}  // namespace
}  // namespace tandem::reservation_messages_test
