#include "router/attempt/failover.h"

#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/worker_views.h"

namespace tandem::failover_test {
namespace {

using Action = FailoverStep::Action;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kWorker = CallEnd::Source::kWorker;
constexpr auto kNetwork = CallEnd::Source::kNetwork;

// A request of prefill workers p0, p1 and decode workers d0, d1 in a cluster that only the test
// changes, at a time that only the test moves.
class FailoverTest : public testing::Test {
 protected:
  FailoverTest() {
    view_.workers = {
        MakeWorker("d0", v1::WORKER_ROLE_DECODE), MakeWorker("d1", v1::WORKER_ROLE_DECODE),
        MakeWorker("p0", v1::WORKER_ROLE_PREFILL), MakeWorker("p1", v1::WORKER_ROLE_PREFILL)};
  }

  WorkerView& At(const std::string& name) {
    return *std::ranges::find(view_.workers, WorkerId{name, 1}, &WorkerView::id);
  }
  // The attempt ran at p0 and d0; `name` is the one that failed.
  AttemptFailure Failure(const std::string& name, AttemptStage stage, const absl::Status& status,
                         CallEnd::Source source) {
    return {.worker = At(name),
            .end = {status, source},
            .stage = stage,
            .workers = {.prefill = At("p0"), .decode = At("d0")}};
  }
  FailoverStep Fail(const AttemptFailure& failure) {
    return failover_.OnFailure(failure, false, view_, {}, now_);
  }
  FailoverStep LoseDecode() {
    return Fail(Failure("d0", AttemptStage::kDecoding, Unavailable("reset"), kNetwork));
  }
  void Report(const std::string& name) {
    now_ += seconds(1);
    At(name).last_report = now_;
  }
  std::vector<std::string> Excluded() {
    std::vector<std::string> names;
    for (const WorkerId& id : failover_.exclusions().Apply(view_, {}).excluded) {
      names.push_back(id.name);
    }
    return names;
  }

  ClusterView view_;
  TimePoint now_ = TimePoint(std::chrono::hours(1));
  const TimePoint deadline_ = now_ + seconds(60);
  Failover failover_{{.max_resumes = 2, .max_wait = seconds(10)}, deadline_};
};

TEST_F(FailoverTest, ALossResumesAndExcludesTheWorkerUntilItsNextReport) {
  const FailoverStep step = LoseDecode();
  EXPECT_EQ(step.action, Action::kResume);
  EXPECT_EQ(step.cause, ResumeCause::kConnection);
  EXPECT_EQ(step.suspect, At("d0").id);
  EXPECT_FALSE(step.avoid.has_value()) << "the hand-off itself did not fail";
  EXPECT_THAT(Excluded(), ElementsAre("d0"));
  Report("d1");
  EXPECT_THAT(Excluded(), ElementsAre("d0"));
  Report("d0");
  EXPECT_THAT(Excluded(), IsEmpty());
}

TEST_F(FailoverTest, EachSourceOfALossHasItsCause) {
  const std::pair<CallEnd::Source, ResumeCause> causes[] = {
      {CallEnd::Source::kWorker, ResumeCause::kHandOff},
      {CallEnd::Source::kNetwork, ResumeCause::kConnection},
      {CallEnd::Source::kLease, ResumeCause::kLease},
      {CallEnd::Source::kStuck, ResumeCause::kNoProgress}};
  for (const auto& [source, cause] : causes) {
    Failover failover({}, deadline_);
    const FailoverStep step =
        failover.OnFailure(Failure("d0", AttemptStage::kDecoding, Unavailable("gone"), source),
                           false, view_, {}, now_);
    EXPECT_EQ(step.action, Action::kResume);
    EXPECT_EQ(step.cause, cause);
    EXPECT_EQ(step.suspect.has_value(), source != kWorker) << "an answer raises no suspicion";
  }
}

TEST_F(FailoverTest, TheBudgetIsSpentByLossesAndNotByLeavingWorkers) {
  At("d0").leaving = true;
  for (int i = 0; i < 5; ++i) {
    const FailoverStep step = LoseDecode();
    EXPECT_EQ(step.action, Action::kResume);
    EXPECT_EQ(step.cause, ResumeCause::kLeaving);
  }
  At("d0").leaving = false;
  for (int i = 0; i < 2; ++i) EXPECT_EQ(LoseDecode().action, Action::kResume);
  const FailoverStep step = LoseDecode();
  EXPECT_EQ(step.action, Action::kFail);
  EXPECT_TRUE(step.gave_up);
  EXPECT_TRUE(absl::IsUnavailable(step.status));
  EXPECT_THAT(std::string(step.status.message()), HasSubstr("lost: d0, d0, d0"));
  EXPECT_EQ(step.suspect, At("d0").id) << "other requests learn of the last loss, too";
}

TEST_F(FailoverTest, ARequestThatNeedsNoMoreTokensFinishesWhateverFails) {
  for (const absl::Status& status : {Unavailable("reset"), Internal("NaN")}) {
    const FailoverStep step = failover_.OnFailure(
        Failure("d0", AttemptStage::kDecoding, status, kNetwork), true, view_, {}, now_);
    EXPECT_EQ(step.action, Action::kFinish);
    EXPECT_EQ(step.suspect, At("d0").id) << "the worker may still be gone";
  }
  EXPECT_THAT(Excluded(), IsEmpty());
}

TEST_F(FailoverTest, AnErrorThatIsNoLossFailsTheRequest) {
  const FailoverStep step =
      Fail(Failure("p0", AttemptStage::kPrefilling, Internal("a row is NaN"), kWorker));
  EXPECT_EQ(step.action, Action::kFail);
  EXPECT_FALSE(step.gave_up);
  EXPECT_TRUE(absl::IsInternal(step.status));
  EXPECT_THAT(std::string(step.status.message()), HasSubstr("prefill worker p0: a row is NaN"));
}

TEST_F(FailoverTest, ADecodeWorkersRefusalOfWhatItReservedForIsNotTheClientsFault) {
  const absl::Status refusal = InvalidArgument("first_tokens");
  EXPECT_TRUE(
      absl::IsInternal(Fail(Failure("d0", AttemptStage::kDecoding, refusal, kWorker)).status));
  EXPECT_TRUE(absl::IsInvalidArgument(
      Fail(Failure("d0", AttemptStage::kReserving, refusal, kWorker)).status));
}

TEST_F(FailoverTest, ARefusalForWantOfRoomTriesAnotherWorkerUnlessTheRequestHasBegun) {
  AttemptFailure failure =
      Failure("d0", AttemptStage::kReserving, ResourceExhausted("full"), kWorker);
  EXPECT_EQ(Fail(failure).action, Action::kTryAnother);
  Report("d0");
  EXPECT_THAT(Excluded(), ElementsAre("d0")) << "each worker is asked once";
  failure.stage = AttemptStage::kUnified;
  failure.heard = true;
  EXPECT_EQ(Fail(failure).action, Action::kFail) << "the client may have tokens";
}

TEST_F(FailoverTest, AfterAResumeAFullWorkerIsAskedOncePerReport) {
  LoseDecode();
  ASSERT_EQ(failover_.OnLeave(ResumeCause::kConnection, now_).action, Action::kResume);
  Fail(Failure("d1", AttemptStage::kReserving, ResourceExhausted("full"), kWorker));
  EXPECT_THAT(Excluded(), ElementsAre("d0", "d1"));
  Report("d1");
  EXPECT_THAT(Excluded(), ElementsAre("d0"));
}

TEST_F(FailoverTest, WorkersThatRefusedToQueueAreAskedAgainUntilOneHasQueuedTheRequest) {
  AttemptFailure failure =
      Failure("d0", AttemptStage::kReserving, ResourceExhausted("full"), kWorker);
  Fail(failure);
  EXPECT_TRUE(failover_.exclusions().ClearNoWait());
  EXPECT_THAT(Excluded(), IsEmpty());
  EXPECT_FALSE(failover_.exclusions().ClearNoWait()) << "once";
  Fail(failure);
  AttemptFailure queued = failure;
  queued.worker = At("d1");
  queued.could_queue = true;
  Fail(queued);
  EXPECT_FALSE(failover_.exclusions().ClearNoWait());
  EXPECT_THAT(Excluded(), ElementsAre("d0", "d1"));
}

TEST_F(FailoverTest, ADecodeWorkerThatAHandOffDidNotReachIsAskedAgainOnlyWithoutAnotherPlace) {
  const FailoverStep step =
      Fail(Failure("p0", AttemptStage::kPrefilling, Unavailable("refused"), kWorker));
  EXPECT_EQ(step.action, Action::kResume);
  EXPECT_EQ(step.avoid, At("d0").id);
  EXPECT_THAT(Excluded(), ElementsAre("d0")) << "p0 has the prompt, and d1 is another place";
  Report("d0");
  EXPECT_THAT(Excluded(), ElementsAre("d0"));
  At("d1").suspected = true;
  EXPECT_THAT(Excluded(), IsEmpty());
}

TEST_F(FailoverTest, APrefillWorkerWhoseHandOffsFailTwiceIsExcludedWhereAnotherCanPrefill) {
  view_.workers.insert(view_.workers.begin() + 2, MakeWorker("d2", v1::WORKER_ROLE_DECODE));
  AttemptFailure failure =
      Failure("p0", AttemptStage::kPrefilling, Unavailable("refused"), kWorker);
  Fail(failure);
  failure.workers.decode = At("d1");
  Fail(failure);
  EXPECT_THAT(Excluded(), ElementsAre("d0", "p0")) << "d1 is not to blame";
}

TEST_F(FailoverTest, ALapsedReservationBlamesNoDecodeWorker) {
  const FailoverStep step =
      Fail(Failure("p0", AttemptStage::kPrefilling, NotFound("it lapsed"), kWorker));
  EXPECT_EQ(step.action, Action::kResume);
  EXPECT_FALSE(step.avoid.has_value());
  EXPECT_THAT(Excluded(), ElementsAre("p0"));
}

TEST_F(FailoverTest, WithoutARouteANewRequestFailsUnlessAWorkerWasLostRecently) {
  const absl::Status no_route = Unavailable("no decode worker");
  EXPECT_EQ(failover_.OnNoRoute(no_route, std::nullopt, now_).action, Action::kFail);
  EXPECT_EQ(failover_.OnNoRoute(no_route, now_ - seconds(10), now_).action, Action::kFail);
  EXPECT_EQ(failover_.OnNoRoute(no_route, now_ - seconds(9), now_).action, Action::kWait);
  EXPECT_EQ(failover_.retry_deadline(), now_ + seconds(10));
  Failover never({.max_resumes = 0}, deadline_);
  EXPECT_EQ(never.OnNoRoute(no_route, now_, now_).action, Action::kFail);
}

TEST_F(FailoverTest, AResumedRequestWaitsUntilTheRetryDeadlineAndThenGivesUp) {
  LoseDecode();
  failover_.OnLeave(ResumeCause::kConnection, now_);
  const absl::Status no_route = Unavailable("no decode worker");
  EXPECT_EQ(failover_.OnNoRoute(no_route, std::nullopt, now_ + seconds(9)).action, Action::kWait);
  const FailoverStep step = failover_.OnNoRoute(no_route, std::nullopt, now_ + seconds(10));
  EXPECT_EQ(step.action, Action::kFail);
  EXPECT_TRUE(step.gave_up);
  EXPECT_THAT(std::string(step.status.message()),
              HasSubstr("was lost: reset; then no decode worker; resumed 1 times, lost: d0"));
}

TEST_F(FailoverTest, TheDeadlineOfTheRequestEndsTheWait) {
  LoseDecode();
  now_ = deadline_ - seconds(3);
  failover_.OnLeave(ResumeCause::kConnection, now_);
  EXPECT_EQ(failover_.retry_deadline(), deadline_);
  const FailoverStep step =
      failover_.OnNoRoute(Unavailable("no decode worker"), std::nullopt, deadline_);
  EXPECT_TRUE(absl::IsDeadlineExceeded(step.status)) << step.status;
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(failover_.OnLeave(ResumeCause::kConnection, deadline_).status));
}

TEST_F(FailoverTest, ARefusalIsTheAnswerUnlessItOnlySaidToAskAnotherWorker) {
  Fail(Failure("d0", AttemptStage::kReserving, ResourceExhausted("full"), kWorker));
  const absl::Status no_route = Unavailable("no decode worker");
  EXPECT_TRUE(absl::IsResourceExhausted(failover_.OnNoRoute(no_route, std::nullopt, now_).status));
  failover_.ForgetRefusal();
  EXPECT_TRUE(absl::IsUnavailable(failover_.OnNoRoute(no_route, std::nullopt, now_).status));
}

}  // namespace
}  // namespace tandem::failover_test
