// Reservations that wait for room at a decode engine: in which order they get it, and how those end
// that do not.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/retry_after.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/call_site.h"
#include "tests/support/fake_clock.h"
#include "tests/support/test_engine.h"
#include "tests/support/wait_limit.h"

namespace tandem::admission_test {
namespace {

using absl::StatusCode;
using std::chrono::seconds;
using ::testing::HasSubstr;

// One call of Reserve, and its answer.
struct Asked {
  ReserveTicket ticket;
  absl::Notification answered;
  absl::StatusOr<Reservation> answer;

  const absl::StatusOr<Reservation>& Await(CallSite line = CallSite::Current()) {
    ::tandem::Await(answered, line);
    return answer;
  }
};

// A pool of four blocks: one sequence of 20 and 8 tokens fills it.
class AdmissionTest : public testing::Test {
 protected:
  void Start(TestEngineSetup setup = {}) {
    setup.role = Role::kDecode;
    setup.num_blocks = 4;
    setup.block_tokens = 8;
    setup.clock = &clock_;
    engine_ = std::make_unique<TestEngine>(setup);
    auto held = Reserve();
    ASSERT_TRUE(held->Await().ok()) << held->answer.status();
    EXPECT_EQ(held->answer->queued, Duration{});
    held_ = held->answer->id;
  }

  std::unique_ptr<Asked> Reserve(int32_t prompt_tokens = 20, int32_t priority = 0,
                                 TimePoint deadline = kNoDeadline,
                                 WhenFull when_full = WhenFull::kWait) {
    auto asked = std::make_unique<Asked>();
    const int32_t vocab = engine_->model().vocab_size;
    ++last_;
    EngineRequest request = Greedy(last_, RandomPrompt(last_, prompt_tokens, vocab), 8);
    request.priority = priority;
    request.deadline = deadline;
    ReserveRequest reservation = engine_->ReservationFor(request);
    reservation.when_full = when_full;
    asked->ticket = (*engine_)->Reserve(std::move(reservation),
                                        [one = asked.get()](absl::StatusOr<Reservation> answer) {
                                          one->answer = std::move(answer);
                                          one->answered.Notify();
                                        });
    return asked;
  }
  void Settle() { engine_->Settle(); }
  void Release(ReservationId id) { (*engine_)->Release(id); }
  int32_t Waiting() {
    Settle();
    return (*engine_)->stats().waiting_reservations;
  }

  FakeClock clock_;
  std::unique_ptr<TestEngine> engine_;
  ReservationId held_;
  uint64_t last_ = 0;
};

TEST_F(AdmissionTest, AReservationWaitsUntilThereIsRoom) {
  Start();
  auto next = Reserve();
  EXPECT_EQ(Waiting(), 1);
  EXPECT_FALSE(next->answered.HasBeenNotified());
  clock_.Advance(seconds(2));
  Release(held_);
  ASSERT_TRUE(next->Await().ok()) << next->answer.status();
  EXPECT_EQ(next->answer->queued, seconds(2));
  EXPECT_EQ(Waiting(), 0);
  Release(next->answer->id);
  Settle();
  EXPECT_TRUE(engine_->AtRest());
}

TEST_F(AdmissionTest, WhoHasAnotherPlaceIsRefusedAtOnce) {
  Start();
  auto patient = Reserve();
  auto hurried = Reserve(20, 9, kNoDeadline, WhenFull::kRefuse);
  EXPECT_EQ(hurried->Await().status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryAfter(hurried->answer.status()).has_value());
  EXPECT_EQ(Waiting(), 1);
  Release(held_);
  ASSERT_TRUE(patient->Await().ok()) << patient->answer.status();
  Release(patient->answer->id);
  auto lucky = Reserve(20, 0, kNoDeadline, WhenFull::kRefuse);
  ASSERT_TRUE(lucky->Await().ok()) << lucky->answer.status();
  Release(lucky->answer->id);
  Settle();
  EXPECT_TRUE(engine_->AtRest());
}

TEST_F(AdmissionTest, PriorityGoesFirstThenArrivalAndNobodyOvertakes) {
  Start();
  auto first = Reserve();
  auto second = Reserve();
  auto small = Reserve(1);  // would fit beside nobody else, too, but waits for its turn
  auto urgent = Reserve(20, 1);
  EXPECT_EQ(Waiting(), 4);
  for (Asked* next : {urgent.get(), first.get(), second.get()}) {
    Release(held_);
    ASSERT_TRUE(next->Await().ok()) << next->answer.status();
    held_ = next->answer->id;
  }
  EXPECT_FALSE(small->answered.HasBeenNotified());
  Release(held_);
  ASSERT_TRUE(small->Await().ok());
  Release(small->answer->id);
  Settle();
  EXPECT_TRUE(engine_->AtRest());
}

TEST_F(AdmissionTest, AFullQueueSaysWhenToComeAgain) {
  Start({.max_waiting_reservations = 2});
  auto first = Reserve();
  auto second = Reserve();
  auto third = Reserve();
  EXPECT_EQ(third->Await().status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryAfter(third->answer.status()).has_value()) << third->answer.status();
  Settle();
  EXPECT_EQ((*engine_)->stats().handoff_counts.refused, 1u);
  // Each admission took 4 s of late, and two are before whoever asks now.
  clock_.Advance(seconds(4));
  Release(held_);
  ASSERT_TRUE(first->Await().ok());
  auto fourth = Reserve();
  auto fifth = Reserve();
  EXPECT_EQ(fifth->Await().status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(RetryAfter(fifth->answer.status()), std::chrono::milliseconds(12000));
  (*engine_)->Shutdown(TimePoint::min());
  EXPECT_EQ(second->Await().status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(fourth->Await().status().code(), StatusCode::kUnavailable);
}

TEST_F(AdmissionTest, NobodyWaitsForEver) {
  Start({.max_reservation_wait = seconds(5)});
  auto patient = Reserve();
  auto hurried = Reserve(20, 0, clock_.Now() + seconds(3));
  EXPECT_EQ(Waiting(), 2);
  clock_.Advance(seconds(3));
  Settle();
  EXPECT_EQ(hurried->Await().status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(patient->answered.HasBeenNotified());
  clock_.Advance(seconds(2));
  Settle();
  EXPECT_EQ(patient->Await().status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryAfter(patient->answer.status()).has_value());
  EXPECT_EQ((*engine_)->stats().handoff_counts.refused, 2u);
  Release(held_);
  Settle();
  EXPECT_TRUE(engine_->AtRest());
}

// However fast the queue moved before.
TEST_F(AdmissionTest, WhoWaitedInVainIsNotToldToComeAgainAtOnce) {
  Start({.max_waiting_reservations = 2, .max_reservation_wait = seconds(5)});
  auto quick = Reserve();
  EXPECT_EQ(Waiting(), 1);
  clock_.Advance(std::chrono::milliseconds(10));
  Release(held_);
  ASSERT_TRUE(quick->Await().ok());
  auto first = Reserve();
  EXPECT_EQ(Waiting(), 1);
  clock_.Advance(seconds(3));
  auto second = Reserve();
  auto third = Reserve();
  EXPECT_EQ(third->Await().status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(RetryAfter(third->answer.status()), seconds(9)) << "two stand before, the first for 3";
  clock_.Advance(seconds(2) + std::chrono::microseconds(135));
  Settle();
  EXPECT_EQ(first->Await().status().code(), StatusCode::kResourceExhausted);
  EXPECT_GE(RetryAfter(first->answer.status()), seconds(5)) << first->answer.status();
  EXPECT_THAT(std::string(first->answer.status().message()), HasSubstr("none in 5000 ms;"));
  Release(quick->answer->id);
  ASSERT_TRUE(second->Await().ok());
  Release(second->answer->id);
  Settle();
  EXPECT_TRUE(engine_->AtRest());
}

TEST_F(AdmissionTest, WhoLeavesMakesWayForTheNext) {
  Start();
  auto first = Reserve();
  auto second = Reserve();
  (*engine_)->CancelReserve(first->ticket);
  EXPECT_EQ(first->Await().status().code(), StatusCode::kCancelled);
  (*engine_)->CancelReserve(first->ticket);  // and is not known any more
  Release(held_);
  ASSERT_TRUE(second->Await().ok());
  (*engine_)->CancelReserve(second->ticket);  // it has its answer
  Settle();
  EXPECT_EQ((*engine_)->stats().reservations, 1);
  Release(second->answer->id);
  Settle();
  EXPECT_TRUE(engine_->AtRest());
}

TEST_F(AdmissionTest, AnEngineThatDrainsTurnsThemAway) {
  Start();
  auto waiting = Reserve();
  EXPECT_EQ(Waiting(), 1);
  (*engine_)->Shutdown(kNoDeadline);
  EXPECT_EQ(waiting->Await().status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(engine_->AtRest());
}

}  // namespace
}  // namespace tandem::admission_test
