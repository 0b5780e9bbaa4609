#include "server/admin/watchdog.h"

#include <atomic>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::watchdog_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string ProblemsOf(const std::vector<PulseState>& states) {
  std::string problems;
  for (const PulseState& state : states) problems += state.problem;
  return problems;
}

// Looks once a second at threads of which it says what they did.
class PulseJudgeTest : public testing::Test {
 protected:
  std::string LookAfter(Duration passed, std::vector<Pulse> pulses) {
    now_ += passed;
    return ProblemsOf(judge_.Judge(pulses, now_));
  }
  std::string Look(std::vector<Pulse> pulses) { return LookAfter(seconds(1), std::move(pulses)); }

  PulseJudge judge_{seconds(4), seconds(2)};
  TimePoint now_;
};

TEST_F(PulseJudgeTest, WhatStandsStillIsStuckOnceThePatienceIsOver) {
  EXPECT_THAT(Look({{"engine", 7}}), IsEmpty());
  for (int i = 0; i < 3; ++i) EXPECT_THAT(Look({{"engine", 7}}), IsEmpty()) << i;
  EXPECT_THAT(Look({{"engine", 7}}), HasSubstr("engine"));
  EXPECT_THAT(Look({{"engine", 7}}), HasSubstr("engine"));
}

TEST_F(PulseJudgeTest, AnyProgressBeginsThePatienceAnew) {
  for (uint64_t layer = 0; layer < 20; ++layer) {
    for (int i = 0; i < 4; ++i) EXPECT_THAT(Look({{"engine", layer}}), IsEmpty()) << layer;
  }
}

TEST_F(PulseJudgeTest, WhatMovesAgainIsWell) {
  for (int i = 0; i < 6; ++i) Look({{"engine", 7}});
  EXPECT_THAT(Look({{"engine", 8}}), IsEmpty());
  EXPECT_THAT(Look({{"engine", 8}}), IsEmpty());
}

TEST_F(PulseJudgeTest, EachThreadIsJudgedByItself) {
  std::string reason;
  for (uint64_t i = 0; i < 6; ++i) reason = Look({{"engine", i}, {"transport", 3}});
  EXPECT_THAT(reason, AllOf(HasSubstr("transport"), testing::Not(HasSubstr("engine"))));
  reason = Look({{"engine", 5}, {"transport", 3}});
  for (int i = 0; i < 4; ++i) reason = Look({{"engine", 5}, {"transport", 3}});
  EXPECT_THAT(reason, AllOf(HasSubstr("transport"), HasSubstr("engine")));
}

TEST_F(PulseJudgeTest, AProcessThatWasStoppedAsAWholeDoesNotHang) {
  EXPECT_THAT(Look({{"engine", 7}}), IsEmpty());
  EXPECT_THAT(LookAfter(seconds(60), {{"engine", 7}}), IsEmpty());
  EXPECT_THAT(Look({{"engine", 7}}), IsEmpty());
  EXPECT_THAT(Look({{"engine", 7}}), HasSubstr("engine"));
}

TEST_F(PulseJudgeTest, APulseMayHaveAPatienceOfItsOwn) {
  const auto look = [this] {
    return Look({{"engine", 7}, {.name = "step", .count = 3, .patience = seconds(6)}});
  };
  for (int i = 0; i < 4; ++i) EXPECT_THAT(look(), IsEmpty()) << i;
  for (int i = 0; i < 2; ++i) EXPECT_THAT(look(), testing::Not(HasSubstr("step"))) << i;
  EXPECT_THAT(look(), AllOf(HasSubstr("engine"), HasSubstr("no step has ended for 6 s")));
}

TEST_F(PulseJudgeTest, EachStateSaysForHowLongNothingHappened) {
  std::vector<PulseState> states;
  for (int i = 0; i < 3; ++i) {
    now_ += seconds(1);
    states = judge_.Judge(
        std::vector<Pulse>{{"engine", 7}, {"kv-tcp", static_cast<uint64_t>(i + 1)}}, now_);
  }
  ASSERT_EQ(states.size(), 2u);
  EXPECT_EQ(states[0].name, "engine");
  EXPECT_EQ(states[0].without_progress, seconds(2));
  EXPECT_EQ(states[1].without_progress, seconds(0));
}

// How long after it a hang is told that begins `since_look` after a look, where each look comes a
// little late.
Duration ToldAfter(const WatchdogOptions& options, Duration since_look, Duration late) {
  PulseJudge judge(options.patience, 2 * options.interval);
  TimePoint now;
  judge.Judge(std::vector<Pulse>{{"engine", 6}}, now);
  const TimePoint hangs = now + since_look;
  while (true) {
    now += options.interval + late;
    const auto states = judge.Judge(std::vector<Pulse>{{"engine", 7}}, now);
    if (!ProblemsOf(states).empty()) return now - hangs;
  }
}

TEST(WatchdogTest, AHangIsToldInTimeWheneverItBegins) {
  constexpr seconds kRoutersKnowWithin(5);
  constexpr milliseconds kToTellARouter(250);  // news are gathered for 50 ms; then a call
  const WatchdogOptions options;
  for (Duration since{}; since < options.interval; since += milliseconds(10)) {
    for (const Duration late : {milliseconds(0), milliseconds(3), milliseconds(30)}) {
      const Duration told = ToldAfter(options, since, late);
      EXPECT_GE(told, options.patience);
      EXPECT_LE(told, options.patience + 2 * (options.interval + late));
      EXPECT_LT(told + kToTellARouter, kRoutersKnowWithin);
    }
  }
}

TEST(WatchdogTest, TellsOfAHangAndOfItsEnd) {
  std::atomic<bool> moves = false;
  uint64_t count = 7;  // the watchdog's thread's
  absl::Notification stuck;
  absl::Notification well;
  Watchdog watchdog(
      {.patience = milliseconds(20), .interval = milliseconds(1)},
      [&] {
        if (moves) ++count;
        return std::vector<Pulse>{{"engine", count}};
      },
      [&](const std::string& reason) { reason.empty() ? well.Notify() : stuck.Notify(); });
  stuck.WaitForNotification();
  EXPECT_THAT(watchdog.reason(), HasSubstr("engine"));
  ASSERT_EQ(watchdog.states().size(), 1u);
  EXPECT_GE(watchdog.states()[0].without_progress, milliseconds(20));
  moves = true;
  well.WaitForNotification();
  EXPECT_THAT(watchdog.reason(), IsEmpty());
}

}  // namespace
}  // namespace tandem::watchdog_test
