// Losses of workers that no call reports: a lease that lapses, a name that another process takes, or
// a worker that says it makes no progress.

#include <chrono>
#include <cstdint>
#include <vector>

#include "tests/support/resume_fixture.h"

namespace tandem::resume_leases_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

using LossTest = ResumeFixture;  // one suite in several files

TEST_F(LossTest, DecodeLostWhilePrefilling) {
  Join("d1", kDecodeRole);
  Submit(Ask());
  clock_.Advance(milliseconds(3));
  Reserved(5);
  const TimePoint reserved = clock_.Now();
  LetLapseAllBut({"p0", "d1"});
  const Duration lost_after = clock_.Now() - reserved;
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  ContinueAt("p0", "d1", 6, {11, 12, 13});
  EXPECT_THAT(workers_.so_far, IsEmpty()) << "the client had no token when it began";
  ExpectTheAnswer(1);
  const v1::Stages& stages = stream_.finishes[0].stages();
  EXPECT_DOUBLE_EQ(stages.reserve_ms(), 3);
  EXPECT_GT(stages.earlier_attempts_ms(), 4000) << "until d0 was lost";
  EXPECT_LE(stages.earlier_attempts_ms(), ToMilliseconds(lost_after));
  EXPECT_EQ(Causes(), "lease 1");
}

// The oldest request gets the room that there is.
TEST_F(LossTest, RequestsOfALostWorkerContinueInTheOrderInWhichTheyCame) {
  std::vector<RecordingStream> streams(8);
  for (int32_t i = 0; i < 8; ++i) {
    v1::GenerateRequest request = Ask();
    request.mutable_token_ids()->set_ids(0, 100 + i);
    ASSERT_TRUE(router_.Submit(request, kNoDeadline, streams[i]).ok());
    loop_.RunReady();
  }
  Join("d1", kDecodeRole);
  workers_.reservations.clear();
  LetLapseAllBut({"p0", "d1"});
  std::vector<int32_t> order;
  for (const auto& call : workers_.reservations) {
    EXPECT_EQ(call->name, "reserve d1");
    order.push_back(call->request.prompt(0));
  }
  EXPECT_THAT(order, ElementsAre(100, 101, 102, 103, 104, 105, 106, 107));
}

// The router was stopped for longer than a lease and reads the heartbeats of that time later.
TEST_F(LossTest, ARouterThatWasStalledLosesNoWorker) {
  SubmitAndHandOver();
  for (int i = 0; i < 2; ++i) {
    clock_.Advance(seconds(30));
    loop_.RunReady();
    EXPECT_THAT(workers_.Open(), ElementsAre("decode d0"));
    Beat("p0");
    Beat("d0");
  }
  clock_.Advance(seconds(30));
  loop_.RunReady();
  Pass(seconds(6));  // now it runs, and no heartbeat arrives
  EXPECT_THAT(workers_.Open(), IsEmpty());
  EXPECT_TRUE(cluster_.View()->workers.empty());
  EXPECT_EQ(Causes(), "lease 1");
}

// The process may be frozen while its connections stand, so no call reports the loss.
TEST_F(LossTest, AWorkerWhoseNameAnotherProcessTookIsLostImmediately) {
  SubmitAndHandOver();
  Say("decode d0", {11});
  clock_.Advance(seconds(2));
  Join("d0", kDecodeRole, 2);
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d0"));
  EXPECT_EQ(workers_.reservations.back()->request.epoch(), 2u);
  clock_.Advance(milliseconds(7));
  ContinueAt("p0", "d0", 6, {12, 13});
  ExpectTheAnswer(1);
  EXPECT_EQ(Causes(), "lease 1");
  EXPECT_DOUBLE_EQ(router_.Status().resumes().max_ms(), 7);
}

TEST_F(LossTest, PrefillReplacedWhilePrefilling) {
  Submit(Ask());
  clock_.Advance(milliseconds(100));
  Reserved(5);
  Join("p0", kPrefillRole, 2);
  EXPECT_THAT(workers_.released, ElementsAre("d0#5"));
  clock_.Advance(milliseconds(7));
  ContinueAt("p0", "d0", 6, {11, 12, 13});
  ExpectTheAnswer(1);
  EXPECT_DOUBLE_EQ(router_.Status().resumes().max_ms(), 7);
  EXPECT_DOUBLE_EQ(router_.Status().resumes().waited().max_ms(), 2108)
      << "since it arrived; the name changed hands after two heartbeats";
}

// The prefill worker is called only once blocks are reserved, so no call reports its loss.
TEST_F(LossTest, PrefillLostWhileReserving) {
  Join("p1", kPrefillRole);
  Submit(Ask());
  LetLapseAllBut({"p1", "d0"});
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d0"));
  ContinueAt("p1", "d0", 6, {11, 12, 13});
  ExpectTheAnswer(1);
  EXPECT_EQ(stream_.finishes[0].prefill_worker(), "p1");
}

TEST_F(LossTest, AWorkerThatMakesNoProgressIsLostUntilItDoes) {
  Join("u0", kUnifiedRole);
  Join("u1", kUnifiedRole);
  Submit(Ask(v1::ROUTE_UNIFIED));
  Say("generate u0", {10, 11});
  Beat("u0", "no step for 4 s");
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u1"));
  Beat("u1", "no step for 4 s");
  EXPECT_THAT(workers_.Open(), IsEmpty());
  Beat("u0");
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0"));
  Say("generate u0", {12, 13});
  Finish("generate u0", kLength);
  ExpectTheAnswer(2);
  EXPECT_EQ(Causes(), "no_progress 2");
}

}  // namespace
}  // namespace tandem::resume_leases_test
