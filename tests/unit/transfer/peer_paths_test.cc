#include "transfer/peer_paths.h"

#include "gtest/gtest.h"
#include "transfer/endpoints.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kShm = 0;
constexpr size_t kTcp = 1;

class PeerPathsTest : public testing::Test {
 protected:
  size_t Choose() { return paths_.Choose(now_).use.path; }
  void Fail(const std::string& reason = "gone") {
    paths_.Failed(paths_.Choose(now_).use, now_, reason);
  }

  PeerPaths paths_{{"shm", "tcp"}};
  TimePoint now_{seconds(100)};
};

TEST_F(PeerPathsTest, TheFirstUntilAnotherWasMeasuredFaster) {
  EXPECT_EQ(Choose(), kShm);
  paths_.SetRate(kShm, 3);
  paths_.SetRate(kTcp, 4);
  EXPECT_EQ(Choose(), kTcp);
  paths_.SetRate(kShm, 5);
  EXPECT_EQ(Choose(), kShm);
  EXPECT_EQ(paths_.fallbacks(), 0u);  // none of this was for a failure
}

TEST_F(PeerPathsTest, AFailureIsAFallbackOnceAndOneStreamTriesAgain) {
  Fail("no such file");
  const auto choice = paths_.Choose(now_);
  EXPECT_EQ(choice.use.path, kTcp);
  ASSERT_TRUE(choice.fallback.has_value());
  EXPECT_EQ(choice.fallback->from, "shm");
  EXPECT_EQ(choice.fallback->to, "tcp");
  EXPECT_EQ(choice.fallback->reason, "no such file");
  EXPECT_FALSE(paths_.Choose(now_).fallback.has_value());
  EXPECT_EQ(paths_.fallbacks(), 1u);

  now_ += PeerPaths::kFirstBackOff;
  const auto trial = paths_.Choose(now_);
  EXPECT_EQ(trial.use.path, kShm);
  EXPECT_EQ(Choose(), kTcp);  // while the trial runs
  paths_.Worked(trial.use);
  EXPECT_EQ(Choose(), kShm);
  EXPECT_EQ(Choose(), kShm);
}

// As where every probe of it failed, and one of tcp succeeded.
TEST_F(PeerPathsTest, AWayThatIsBetterByNatureIsMissedThoughNobodyMeasuredIt) {
  paths_.Failed(paths_.UseOf(kShm), now_, "no room");
  paths_.SetRate(kTcp, 4);
  const auto choice = paths_.Choose(now_);
  EXPECT_EQ(choice.use.path, kTcp);
  ASSERT_TRUE(choice.fallback.has_value());
  EXPECT_EQ(choice.fallback->from, "shm");
  EXPECT_EQ(choice.fallback->reason, "no room");
  now_ += PeerPaths::kFirstBackOff;
  const auto trial = paths_.Choose(now_);
  EXPECT_EQ(trial.use.path, kShm);
  paths_.Worked(trial.use);
  EXPECT_EQ(Choose(), kShm) << "until it is measured";
  paths_.SetRate(kShm, 3);
  EXPECT_EQ(Choose(), kTcp);
  EXPECT_EQ(paths_.fallbacks(), 1u);
}

TEST_F(PeerPathsTest, WhatIsWorseByNatureIsNotMissed) {
  paths_.Failed(paths_.UseOf(kTcp), now_, "no route");
  paths_.SetRate(kShm, 1);
  EXPECT_EQ(Choose(), kShm);
  now_ += PeerPaths::kLongestBackOff;
  EXPECT_EQ(Choose(), kShm) << "nor tried";
  EXPECT_EQ(paths_.fallbacks(), 0u);
}

TEST(PeerPathsOrderTest, BetterByNatureThenByRateThenTheRest) {
  PeerPaths paths({"ipc", "nccl", "shm", "tcp"});
  paths.SetRate(2, 3);
  paths.SetRate(1, 2);
  const TimePoint now{seconds(100)};
  std::vector<size_t> order;
  for (int i = 0; i < 4; ++i) {
    order.push_back(paths.Choose(now).use.path);
    paths.Failed(paths.UseOf(order.back()), now, "gone");
  }
  EXPECT_EQ(order, (std::vector<size_t>{0, 2, 1, 3}));
}

// It was the better one all along, but no stream had missed it.
TEST_F(PeerPathsTest, AWayThatBecameTheBestWhileItIsDownIsAFallback) {
  paths_.SetRate(kShm, 3);
  paths_.SetRate(kTcp, 4);
  EXPECT_EQ(Choose(), kTcp);
  paths_.Failed(paths_.UseOf(kShm), now_, "gone");
  EXPECT_FALSE(paths_.Choose(now_).fallback.has_value());
  paths_.SetRate(kTcp, 2);
  EXPECT_TRUE(paths_.Choose(now_).fallback.has_value());
  EXPECT_FALSE(paths_.Choose(now_).fallback.has_value());
  EXPECT_EQ(paths_.fallbacks(), 1u);
}

TEST_F(PeerPathsTest, ADamagedStreamKeepsOthersAwayForLong) {
  paths_.Damaged(paths_.Choose(now_).use, now_, "misses 3 extents");
  const auto choice = paths_.Choose(now_);
  EXPECT_EQ(choice.use.path, kTcp);
  ASSERT_TRUE(choice.fallback.has_value());
  EXPECT_EQ(choice.fallback->reason, "misses 3 extents");
  now_ += PeerPaths::kLongestBackOff - milliseconds(1);
  EXPECT_EQ(Choose(), kTcp);
  now_ += milliseconds(1);
  EXPECT_EQ(Choose(), kShm);
  PeerPaths only({"tcp"});
  only.Damaged(only.Choose(now_).use, now_, "misses 3 extents");
  EXPECT_EQ(only.Choose(now_).use.path, 0u) << "there is no other";
}

TEST_F(PeerPathsTest, TheBackOffDoublesUpToItsBoundAndStartsAnewAfterSuccess) {
  Duration back_off = PeerPaths::kFirstBackOff;
  for (int i = 0; i < 10; ++i) {
    Fail();
    now_ += back_off - milliseconds(1);
    EXPECT_EQ(Choose(), kTcp) << i;
    now_ += milliseconds(1);
    back_off = std::min(back_off * 2, PeerPaths::kLongestBackOff);
  }
  EXPECT_EQ(back_off, PeerPaths::kLongestBackOff);
  paths_.Worked(paths_.Choose(now_).use);
  Fail();
  now_ += PeerPaths::kFirstBackOff;
  EXPECT_EQ(Choose(), kShm);
}

TEST_F(PeerPathsTest, StreamsThatFailTogetherAreOneFailure) {
  const auto first = paths_.Choose(now_).use;
  const auto second = paths_.Choose(now_).use;
  paths_.Failed(first, now_, "lost");
  paths_.Failed(second, now_, "lost");
  now_ += PeerPaths::kFirstBackOff;
  EXPECT_EQ(Choose(), kShm);
}

TEST_F(PeerPathsTest, AnEndFromBeforeTheFailureProvesNothing) {
  const auto old = paths_.Choose(now_).use;
  Fail();
  paths_.Worked(old);
  EXPECT_EQ(Choose(), kTcp);
}

TEST_F(PeerPathsTest, ATrialThatWasGivenUpLeavesTheNextOneToAnother) {
  Fail();
  now_ += PeerPaths::kFirstBackOff;
  const auto trial = paths_.Choose(now_);
  ASSERT_EQ(trial.use.path, kShm);
  paths_.GaveUp(trial.use);
  EXPECT_EQ(Choose(), kShm);
}

TEST_F(PeerPathsTest, WhenAllHaveFailedTheOneThatIsDueSoonestIsTried) {
  Fail();
  now_ += milliseconds(1);
  Fail();
  EXPECT_EQ(Choose(), kShm);
  PeerPaths only({"tcp"});
  only.Failed(only.Choose(now_).use, now_, "lost");
  const auto again = only.Choose(now_);
  EXPECT_EQ(again.use.path, 0u);
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
}  // namespace tandem
