#include "router/admission/admission_control.h"

#include <memory>
#include <string>
#include <utility>

#include "base/retry_after.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/admission/token_bucket.h"

namespace tandem::admission_control_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

const TimePoint kStart = TimePoint() + seconds(1000);

std::shared_ptr<const TenantPolicy> PolicyOf(TenantLimits usual,
                                             std::map<std::string, TenantLimits> tenants = {}) {
  TenantPolicy policy{.usual = usual, .tenants = {}};
  for (auto& [name, limits] : tenants) policy.tenants[name] = limits;
  return std::make_shared<const TenantPolicy>(std::move(policy));
}

// Refused with a retry-after; its message has `says`.
void ExpectRefused(const absl::Status& status, const std::string& says) {
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  ASSERT_TRUE(RetryAfter(status).has_value()) << status;
  EXPECT_GE(*RetryAfter(status), milliseconds(50));
}

TEST(TokenBucketTest, BeginsFullAndRefillsEvenly) {
  TokenBucket bucket(60, kStart);
  EXPECT_EQ(bucket.Level(kStart), 60);
  bucket.Take(60, kStart);
  EXPECT_EQ(bucket.UntilLevel(1, kStart), seconds(1));
  EXPECT_NEAR(bucket.Level(kStart + seconds(30)), 30, 1e-9);
  EXPECT_FALSE(bucket.IsFull(kStart + milliseconds(59'999)));
  EXPECT_TRUE(bucket.IsFull(kStart + seconds(60)));
  EXPECT_EQ(bucket.Level(kStart + seconds(600)), 60);
}

TEST(TokenBucketTest, PaysBackWhatWasOverdrawn) {
  TokenBucket bucket(60, kStart);
  bucket.Take(90, kStart);
  EXPECT_EQ(bucket.UntilLevel(1, kStart), seconds(31));
  EXPECT_GE(bucket.Level(kStart + bucket.UntilLevel(1, kStart)), 1);
}

TEST(TokenBucketTest, ANewRateKeepsWhatIsThereAsFarAsItFits) {
  TokenBucket bucket(60, kStart);
  bucket.SetRate(30, kStart);
  EXPECT_EQ(bucket.Level(kStart), 30);
  bucket.Take(20, kStart);
  bucket.SetRate(600, kStart);
  EXPECT_EQ(bucket.Level(kStart), 10);
  EXPECT_NEAR(bucket.Level(kStart + seconds(1)), 20, 1e-9);
}

TEST(AdmissionControlTest, RowsInFlightAreBounded) {
  AdmissionControl admission({.max_in_flight = 4});
  ASSERT_TRUE(admission.Admit("", 3, kStart).ok());
  ExpectRefused(admission.Admit("", 2, kStart), "2 more choices would exceed the 4");
  EXPECT_EQ(admission.in_flight(), 3);
  ASSERT_TRUE(admission.Admit("", 1, kStart).ok());
  admission.Release("", 3, kStart);
  admission.Release("", 1, kStart);
  EXPECT_EQ(admission.in_flight(), 0);
  EXPECT_EQ(admission.Use().refused_in_flight(), 1);
  EXPECT_EQ(admission.Use().active_tenants(), 0);
}

TEST(AdmissionControlTest, ATenantThatWaitsForItsRetryAfterIsAdmitted) {
  AdmissionControl admission({});
  admission.SetTenants(PolicyOf({.requests_per_minute = 2}), kStart);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(admission.Admit("a", 1, kStart).ok());
    admission.Release("a", 1, kStart);
  }
  const absl::Status refused = admission.Admit("a", 1, kStart);
  ExpectRefused(refused, "tenant a may send 2 requests per minute");
  EXPECT_EQ(RetryAfter(refused), seconds(30));
  EXPECT_TRUE(admission.Admit("b", 1, kStart).ok()) << "another tenant has a rate of its own";
  EXPECT_FALSE(admission.Admit("a", 1, kStart + seconds(29)).ok());
  EXPECT_TRUE(admission.Admit("a", 1, kStart + *RetryAfter(refused)).ok());
  EXPECT_EQ(admission.Use().refused_tenant_requests(), 2);
}

TEST(AdmissionControlTest, TokensBeyondTheRateAreOwed) {
  AdmissionControl admission({});
  admission.SetTenants(PolicyOf({.tokens_per_minute = 600}), kStart);
  ASSERT_TRUE(admission.Admit("a", 1, kStart).ok());
  admission.ChargeTokens("a", 1199, kStart);
  const absl::Status refused = admission.Admit("a", 1, kStart);
  ExpectRefused(refused, "tenant a may use 600 tokens per minute");
  EXPECT_EQ(RetryAfter(refused), seconds(60));
  admission.Release("a", 1, kStart);
  EXPECT_FALSE(admission.Admit("a", 1, kStart + seconds(59)).ok()) << "what is owed is remembered";
  EXPECT_TRUE(admission.Admit("a", 1, kStart + seconds(60)).ok());
  EXPECT_EQ(admission.Use().refused_tenant_tokens(), 2);
}

TEST(AdmissionControlTest, ATenantHasABoundOfItsOwn) {
  AdmissionControl admission({});
  admission.SetTenants(PolicyOf({}, {{"a", {.max_in_flight = 2}}}), kStart);
  ASSERT_TRUE(admission.Admit("a", 2, kStart).ok());
  ExpectRefused(admission.Admit("a", 1, kStart), "the 2 that it may have in flight");
  EXPECT_TRUE(admission.Admit("b", 3, kStart).ok());
  EXPECT_EQ(admission.Use().refused_tenant_in_flight(), 1);
  EXPECT_EQ(admission.Use().active_tenants(), 2);
}

TEST(AdmissionControlTest, NewLimitsHoldForTenantsInFlight) {
  AdmissionControl admission({});
  ASSERT_TRUE(admission.Admit("a", 2, kStart).ok());
  admission.SetTenants(PolicyOf({.max_in_flight = 2}), kStart);
  EXPECT_FALSE(admission.Admit("a", 1, kStart).ok());
  admission.SetTenants(PolicyOf({}), kStart);
  EXPECT_TRUE(admission.Admit("a", 1, kStart).ok());
}

TEST(AdmissionControlTest, WhereARouterIsNearlyFullTenantsAreHeldToTheirShares) {
  AdmissionControl admission({.max_in_flight = 10, .crowded = 0.8});
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(admission.Admit("greedy", 1, kStart).ok()) << i;
  ASSERT_TRUE(admission.Admit("modest", 1, kStart).ok());
  ExpectRefused(admission.Admit("greedy", 1, kStart), "exceed its share of 5");
  EXPECT_TRUE(admission.Admit("modest", 1, kStart).ok()) << "the room that is left is for others";
  EXPECT_EQ(admission.Use().refused_tenant_share(), 1);
}

TEST(AdmissionControlTest, ATenantThatIsAloneMayHaveAllRoom) {
  AdmissionControl admission({.max_in_flight = 10, .crowded = 0.5});
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(admission.Admit("a", 1, kStart).ok()) << i;
}

TEST(AdmissionControlTest, SharesFollowWeights) {
  AdmissionControl admission({.max_in_flight = 12, .crowded = 0});
  admission.SetTenants(PolicyOf({}, {{"heavy", {.weight = 3}}}), kStart);
  ASSERT_TRUE(admission.Admit("light", 1, kStart).ok());
  int heavy = 0;
  while (admission.Admit("heavy", 1, kStart).ok()) ++heavy;
  int light = 1;
  while (admission.Admit("light", 1, kStart).ok()) ++light;
  EXPECT_EQ(heavy, 9);
  EXPECT_EQ(light, 3);
}

TEST(AdmissionControlTest, NamesThatClientsMakeUpAreForgotten) {
  AdmissionControl admission({});
  admission.SetTenants(PolicyOf({.requests_per_minute = 1}), kStart);
  constexpr int kNames = 40'000;
  for (int i = 0; i < kNames; ++i) {
    const std::string name = std::to_string(i);
    ASSERT_TRUE(admission.Admit(name, 1, kStart).ok());
    admission.Release(name, 1, kStart);
  }
  // Had it kept all, the first would still be refused.
  EXPECT_TRUE(admission.Admit("0", 1, kStart).ok());
  EXPECT_EQ(admission.in_flight(), 1);
}

// Of all but 500 ms, the request waits.
PredictedStart Start(ModelTime ttft) {
  return {.tenant = "a",
          .ttft = ttft,
          .wait = ttft - ModelTime(500),
          .interval = 0,
          .left = seconds(10),
          .ttft_slo = ModelTime(2000)};
}

TEST(AdmissionControlTest, TenantsThatAreNamedAreCountedApart) {
  AdmissionControl admission({.max_in_flight = 5});
  ASSERT_TRUE(admission.Admit("before", 1, kStart).ok());
  EXPECT_TRUE(admission.Use().tenants().empty()) << "where nobody is named";
  TenantPolicy policy;
  policy.named = {"a", "b"};
  admission.SetTenants(std::make_shared<const TenantPolicy>(policy), kStart);
  ASSERT_TRUE(admission.Admit("b", 2, kStart).ok());
  admission.ChargeTokens("b", 30, kStart);
  ASSERT_TRUE(admission.Admit("made-up", 1, kStart).ok());
  admission.ChargeTokens("made-up", 7, kStart);
  EXPECT_FALSE(admission.Admit("b", 2, kStart).ok());
  const v1::AdmissionUse use = admission.Use();
  ASSERT_EQ(use.tenants_size(), 3);
  const auto expect = [&use](int at, const std::string& name, int32_t in_flight, uint64_t admitted,
                             uint64_t refused, uint64_t tokens) {
    SCOPED_TRACE(name);
    const v1::TenantUse& tenant = use.tenants(at);
    EXPECT_EQ(tenant.tenant(), name);
    EXPECT_EQ(tenant.in_flight(), in_flight);
    EXPECT_EQ(tenant.admitted(), admitted);
    EXPECT_EQ(tenant.refused(), refused);
    EXPECT_EQ(tenant.tokens(), tokens);
  };
  expect(0, "a", 0, 0, 0, 0);
  expect(1, "b", 2, 1, 1, 30);
  expect(2, "", 2, 2, 0, 7);

  policy.named = {"b"};
  admission.SetTenants(std::make_shared<const TenantPolicy>(policy), kStart);
  ASSERT_EQ(admission.Use().tenants_size(), 2);
  EXPECT_EQ(admission.Use().tenants(0).tokens(), 30) << "a change of the file loses no count";
}

TEST(AdmissionControlTest, OnlySoManyTenantsAreCountedApart) {
  AdmissionControl admission({});
  TenantPolicy policy;
  for (int i = 0; i < 150; ++i) policy.named.insert(fmt::format("{:03}", i));
  admission.SetTenants(std::make_shared<const TenantPolicy>(policy), kStart);
  ASSERT_TRUE(admission.Admit("120", 1, kStart).ok());
  const v1::AdmissionUse use = admission.Use();
  ASSERT_EQ(use.tenants_size(), 101);
  EXPECT_EQ(use.tenants(99).tenant(), "099");
  EXPECT_EQ(use.tenants(100).admitted(), 1u);
}

TEST(AdmissionControlTest, WhatWouldBeginAfterItsDeadlineIsRefused) {
  AdmissionControl admission({.shedding = Shedding::kDeadline});
  EXPECT_TRUE(admission.CheckStart(Start(ModelTime(10'000))).ok());
  const absl::Status refused = admission.CheckStart(Start(ModelTime(12'500)));
  ExpectRefused(refused, "expected in 12.5 s, after its deadline in 10.0 s");
  EXPECT_EQ(RetryAfter(refused), milliseconds(2500));
  EXPECT_EQ(admission.Use().shed_deadline(), 1);
  EXPECT_EQ(admission.Use().shed_slo(), 0);
}

TEST(AdmissionControlTest, WhatWouldMissItsSloIsRefusedWhereThatIsWanted) {
  AdmissionControl admission({.shedding = Shedding::kSlo});
  EXPECT_TRUE(admission.CheckStart(Start(ModelTime(1850))).ok());
  PredictedStart late = Start(ModelTime(1500));  // it waits for 1000 of them, give or take 100
  late.elapsed = milliseconds(1400);
  const absl::Status refused = admission.CheckStart(late);
  ExpectRefused(refused, "expected 2.90 s after it came");
  EXPECT_EQ(RetryAfter(refused), seconds(1));
  EXPECT_EQ(admission.Use().shed_slo(), 1);
  late.ttft_slo.reset();
  EXPECT_TRUE(admission.CheckStart(late).ok());
}

TEST(AdmissionControlTest, TheErrorOfThePredictionCountsForTheWait) {
  AdmissionControl admission({.shedding = Shedding::kSlo});
  PredictedStart start = Start(ModelTime(1700));  // of which it waits 1,200 ms
  start.interval = 0.25;
  EXPECT_TRUE(admission.CheckStart(start).ok());
  start.interval = 0.26;
  ExpectRefused(admission.CheckStart(start), "give or take 0.31 s, and its TTFT SLO is 2.00 s");
  start = Start(ModelTime(1500));
  start.interval.reset();
  EXPECT_TRUE(admission.CheckStart(start).ok());
  start.ttft += ModelTime(1);
  start.wait += ModelTime(1);
  EXPECT_FALSE(admission.CheckStart(start).ok()) << "half as much is added where nothing is known";
}

TEST(AdmissionControlTest, WhatWouldMissItsSloWithoutAnyWaitIsNotToldToComeAgain) {
  AdmissionControl admission({.shedding = Shedding::kSlo});
  PredictedStart start = Start(ModelTime(5000));
  start.wait = ModelTime(2500);
  EXPECT_TRUE(admission.CheckStart(start).ok());
}

TEST(AdmissionControlTest, NothingIsShedWhereThatIsOff) {
  AdmissionControl off({.shedding = Shedding::kOff});
  EXPECT_TRUE(off.CheckStart(Start(ModelTime(1e6))).ok());
  AdmissionControl deadline({.shedding = Shedding::kDeadline});
  EXPECT_TRUE(deadline.CheckStart(Start(ModelTime(9000))).ok());
}

TEST(AdmissionControlTest, APriorityOvertakesWhatItIsPredictedToWaitFor) {
  AdmissionControl admission({.shedding = Shedding::kSlo});
  PredictedStart start = Start(ModelTime(20'000));
  start.priority = 1;
  EXPECT_TRUE(admission.CheckStart(start).ok());
}

TEST(AdmissionControlTest, ATenantBelowItsShareIsNotShedForTheQueueOfOthers) {
  AdmissionControl admission({.shedding = Shedding::kSlo});
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(admission.Admit("greedy", 1, kStart).ok());
  ASSERT_TRUE(admission.Admit("a", 1, kStart).ok());
  PredictedStart start = Start(ModelTime(5000));
  EXPECT_TRUE(admission.CheckStart(start).ok());
  start.tenant = "greedy";
  EXPECT_FALSE(admission.CheckStart(start).ok());
  start.tenant = "a";
  start.ttft = ModelTime(11'000);
  EXPECT_FALSE(admission.CheckStart(start).ok()) << "after its deadline it is of no use to anybody";
}

}  // namespace
}  // namespace tandem::admission_control_test
