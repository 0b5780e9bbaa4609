#include "router/request/stages.h"

#include "gtest/gtest.h"

namespace tandem::stages_test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

double Sum(const v1::Stages& s) {
  return s.earlier_attempts_ms() + s.queue_ms() + s.prefill_ms() + s.reserve_ms() +
         s.admission_ms() + s.transfer_ms() + s.first_token_ms() + s.residual_ms();
}

ChoiceTimes FirstTokenAfter(Duration ttft) {
  ChoiceTimes times;
  times.received = TimePoint(milliseconds(1000));
  times.first_token = times.received + ttft;
  return times;
}

TEST(SplitTtftTest, PartsAddUp) {
  const AttemptTimes attempts{.reserve = microseconds(600),
                              .admission = microseconds(100),
                              .earlier_attempts = microseconds(1300)};
  v1::StageTimes worker;
  worker.set_queue_us(1000);
  worker.set_prefill_us(8000);
  worker.set_transfer_us(500);
  worker.set_first_token_us(45);
  const v1::Stages stages = SplitTtft(FirstTokenAfter(microseconds(12345)), attempts, worker);
  EXPECT_DOUBLE_EQ(stages.ttft_ms(), 12.345);
  EXPECT_DOUBLE_EQ(stages.reserve_ms(), 0.6);
  EXPECT_DOUBLE_EQ(stages.admission_ms(), 0.1);
  EXPECT_DOUBLE_EQ(stages.earlier_attempts_ms(), 1.3);
  EXPECT_NEAR(stages.residual_ms(), 0.8, 1e-9);
  EXPECT_NEAR(Sum(stages), stages.ttft_ms(), 1e-9);
}

TEST(SplitTtftTest, OnlyRoundingErrorsAreHidden) {
  v1::StageTimes worker;
  worker.set_prefill_us(1005);
  EXPECT_EQ(SplitTtft(FirstTokenAfter(microseconds(1000)), {}, worker).residual_ms(), 0);
  worker.set_prefill_us(5000);  // a worker that claims more than there was is shown, not hidden
  EXPECT_NEAR(SplitTtft(FirstTokenAfter(microseconds(1000)), {}, worker).residual_ms(), -4, 1e-9);
}

TEST(TimePerOutputTokenTest, IsTheMeanAfterTheFirst) {
  ChoiceTimes times = FirstTokenAfter(milliseconds(5));
  times.last_token = times.first_token + milliseconds(30);
  EXPECT_DOUBLE_EQ(TimePerOutputTokenMs(times, 4), 10);
  EXPECT_EQ(TimePerOutputTokenMs(times, 1), 0);
}

}  // namespace
}  // namespace tandem::stages_test
