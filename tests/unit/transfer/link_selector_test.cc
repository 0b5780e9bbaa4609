#include "transfer/fabric/link_selector.h"

#include "gtest/gtest.h"
#include "transfer/fabric/endpoints.h"

namespace tandem::link_selector_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kShm = 0;
constexpr size_t kTcp = 1;

class LinkSelectorTest : public testing::Test {
 protected:
  size_t Choose() { return selector_.Choose(now_).use.link; }
  void Fail(const std::string& reason = "gone") {
    selector_.Failed(selector_.Choose(now_).use, now_, reason);
  }

  LinkSelector selector_{{"shm", "tcp"}};
  TimePoint now_{seconds(100)};
};

TEST_F(LinkSelectorTest, TheFirstUntilAnotherWasMeasuredFaster) {
  EXPECT_EQ(Choose(), kShm);
  selector_.SetRate(kShm, 3);
  selector_.SetRate(kTcp, 4);
  EXPECT_EQ(Choose(), kTcp);
  selector_.SetRate(kShm, 5);
  EXPECT_EQ(Choose(), kShm);
  EXPECT_EQ(selector_.fallbacks(), 0u);  // none of this was for a failure
}

TEST_F(LinkSelectorTest, AFailureIsAFallbackOnceAndOneStreamTriesAgain) {
  Fail("no such file");
  const auto choice = selector_.Choose(now_);
  EXPECT_EQ(choice.use.link, kTcp);
  ASSERT_TRUE(choice.fallback.has_value());
  EXPECT_EQ(choice.fallback->from, "shm");
  EXPECT_EQ(choice.fallback->to, "tcp");
  EXPECT_EQ(choice.fallback->reason, "no such file");
  EXPECT_FALSE(selector_.Choose(now_).fallback.has_value());
  EXPECT_EQ(selector_.fallbacks(), 1u);

  now_ += LinkSelector::kFirstBackOff;
  const auto trial = selector_.Choose(now_);
  EXPECT_EQ(trial.use.link, kShm);
  EXPECT_EQ(Choose(), kTcp);  // while the trial runs
  selector_.Worked(trial.use);
  EXPECT_EQ(Choose(), kShm);
  EXPECT_EQ(Choose(), kShm);
}

// As where every probe of it failed, and one of tcp succeeded.
TEST_F(LinkSelectorTest, AWayThatIsBetterByNatureIsMissedThoughNobodyMeasuredIt) {
  selector_.Failed(selector_.UseOf(kShm), now_, "no room");
  selector_.SetRate(kTcp, 4);
  const auto choice = selector_.Choose(now_);
  EXPECT_EQ(choice.use.link, kTcp);
  ASSERT_TRUE(choice.fallback.has_value());
  EXPECT_EQ(choice.fallback->from, "shm");
  EXPECT_EQ(choice.fallback->reason, "no room");
  now_ += LinkSelector::kFirstBackOff;
  const auto trial = selector_.Choose(now_);
  EXPECT_EQ(trial.use.link, kShm);
  selector_.Worked(trial.use);
  EXPECT_EQ(Choose(), kShm) << "until it is measured";
  selector_.SetRate(kShm, 3);
  EXPECT_EQ(Choose(), kTcp);
  EXPECT_EQ(selector_.fallbacks(), 1u);
}

TEST_F(LinkSelectorTest, WhatIsWorseByNatureIsNotMissed) {
  selector_.Failed(selector_.UseOf(kTcp), now_, "no route");
  selector_.SetRate(kShm, 1);
  EXPECT_EQ(Choose(), kShm);
  now_ += LinkSelector::kLongestBackOff;
  EXPECT_EQ(Choose(), kShm) << "nor tried";
  EXPECT_EQ(selector_.fallbacks(), 0u);
}

TEST(LinkSelectorOrderTest, BetterByNatureThenByRateThenTheRest) {
  LinkSelector paths({"ipc", "nccl", "shm", "tcp"});
  paths.SetRate(2, 3);
  paths.SetRate(1, 2);
  const TimePoint now{seconds(100)};
  std::vector<size_t> order;
  for (int i = 0; i < 4; ++i) {
    order.push_back(paths.Choose(now).use.link);
    paths.Failed(paths.UseOf(order.back()), now, "gone");
  }
  EXPECT_EQ(order, (std::vector<size_t>{0, 2, 1, 3}));
}

// It was the better one all along, but no stream had missed it.
TEST_F(LinkSelectorTest, AWayThatBecameTheBestWhileItIsDownIsAFallback) {
  selector_.SetRate(kShm, 3);
  selector_.SetRate(kTcp, 4);
  EXPECT_EQ(Choose(), kTcp);
  selector_.Failed(selector_.UseOf(kShm), now_, "gone");
  EXPECT_FALSE(selector_.Choose(now_).fallback.has_value());
  selector_.SetRate(kTcp, 2);
  EXPECT_TRUE(selector_.Choose(now_).fallback.has_value());
  EXPECT_FALSE(selector_.Choose(now_).fallback.has_value());
  EXPECT_EQ(selector_.fallbacks(), 1u);
}

TEST_F(LinkSelectorTest, ADamagedStreamKeepsOthersAwayForLong) {
  selector_.Damaged(selector_.Choose(now_).use, now_, "misses 3 extents");
  const auto choice = selector_.Choose(now_);
  EXPECT_EQ(choice.use.link, kTcp);
  ASSERT_TRUE(choice.fallback.has_value());
  EXPECT_EQ(choice.fallback->reason, "misses 3 extents");
  now_ += LinkSelector::kLongestBackOff - milliseconds(1);
  EXPECT_EQ(Choose(), kTcp);
  now_ += milliseconds(1);
  EXPECT_EQ(Choose(), kShm);
  LinkSelector only({"tcp"});
  only.Damaged(only.Choose(now_).use, now_, "misses 3 extents");
  EXPECT_EQ(only.Choose(now_).use.link, 0u) << "there is no other";
}

TEST_F(LinkSelectorTest, TheBackOffDoublesUpToItsBoundAndStartsAnewAfterSuccess) {
  Duration back_off = LinkSelector::kFirstBackOff;
  for (int i = 0; i < 10; ++i) {
    Fail();
    now_ += back_off - milliseconds(1);
    EXPECT_EQ(Choose(), kTcp) << i;
    now_ += milliseconds(1);
    back_off = std::min(back_off * 2, LinkSelector::kLongestBackOff);
  }
  EXPECT_EQ(back_off, LinkSelector::kLongestBackOff);
  selector_.Worked(selector_.Choose(now_).use);
  Fail();
  now_ += LinkSelector::kFirstBackOff;
  EXPECT_EQ(Choose(), kShm);
}

TEST_F(LinkSelectorTest, StreamsThatFailTogetherAreOneFailure) {
  const auto first = selector_.Choose(now_).use;
  const auto second = selector_.Choose(now_).use;
  selector_.Failed(first, now_, "lost");
  selector_.Failed(second, now_, "lost");
  now_ += LinkSelector::kFirstBackOff;
  EXPECT_EQ(Choose(), kShm);
}

TEST_F(LinkSelectorTest, AnEndFromBeforeTheFailureProvesNothing) {
  const auto old = selector_.Choose(now_).use;
  Fail();
  selector_.Worked(old);
  EXPECT_EQ(Choose(), kTcp);
}

TEST_F(LinkSelectorTest, ATrialThatWasGivenUpLeavesTheNextOneToAnother) {
  Fail();
  now_ += LinkSelector::kFirstBackOff;
  const auto trial = selector_.Choose(now_);
  ASSERT_EQ(trial.use.link, kShm);
  selector_.GaveUp(trial.use);
  EXPECT_EQ(Choose(), kShm);
}

TEST_F(LinkSelectorTest, WhenAllHaveFailedTheOneThatIsDueSoonestIsTried) {
  Fail();
  now_ += milliseconds(1);
  Fail();
  EXPECT_EQ(Choose(), kShm);
  LinkSelector only({"tcp"});
  only.Failed(only.Choose(now_).use, now_, "lost");
  const auto again = only.Choose(now_);
  EXPECT_EQ(again.use.link, 0u);
  EXPECT_FALSE(again.fallback.has_value());
}

TEST(EndpointsTest, AreReadAndWritten) {
  const auto endpoints = ParseEndpoints("shm:ab-1 tcp:[::1]:70");
  ASSERT_TRUE(endpoints.ok()) << endpoints.status();
  EXPECT_EQ(*endpoints, (std::vector<Endpoint>{{"shm", "ab-1"}, {"tcp", "[::1]:70"}}));
  EXPECT_EQ(ToText(*endpoints), "shm:ab-1 tcp:[::1]:70");
}

TEST(EndpointsTest, WhatIsNoneIsRefused) {
  std::string many = "a0:x";
  for (size_t i = 1; i <= kMaxEndpoints; ++i) many += " a" + std::to_string(i) + ":x";
  for (const std::string& text :
       {std::string(), std::string(" "), std::string("tcp"), std::string("tcp:"), std::string(":1"),
        std::string("Tcp:1"), std::string("tcp:1 "), std::string(" tcp:1"),
        std::string("tcp:1  shm:2"), std::string("tcp:1 tcp:2"), std::string("tcp:a\nb"),
        std::string("tcp:\xff"), "tcp:" + std::string(kMaxEndpointBytes, 'x'), many}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseEndpoints(text).status())) << text;
  }
}

}  // namespace
}  // namespace tandem::link_selector_test
