// Hand-offs to some decode workers fail, though these send heartbeats, have room and look idle.

#include "tests/support/resume_fixture.h"

namespace tandem::unreached_test {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class UnreachedTest : public ResumeFixture {
 protected:
  // The hand-off to the chosen decode worker fails; then all workers report.
  void FailHandOff(const std::string& prefill = "p0") {
    Reserved(5);
    Say("prefill " + prefill, {10});
    End("prefill " + prefill, Unavailable("Connection refused"), kWorker);
    const std::shared_ptr<const ClusterView> view = cluster_.View();
    for (const WorkerView& worker : view->workers) Beat(worker.id.name);
  }
};

TEST_F(UnreachedTest, AnotherDecodeWorkerIsTakenHoweverBusy) {
  Join("d1", kDecodeRole);
  cluster_.Charge({"d1", 1}, {.sequences = 50});
  Submit(Ask());
  FailHandOff();
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  EXPECT_FALSE(workers_.reservations.back()->request.at_once()) << "d0 is no other place";
  ContinueAt("p0", "d1", 6, {11, 12, 13});
  cluster_.Discharge({"d1", 1}, {.sequences = 50});
  ExpectTheAnswer(1);
}

TEST_F(UnreachedTest, LaterRequestsGoElsewhereForAWhile) {
  Join("d1", kDecodeRole);
  const auto answer_at_d1 = [this](int32_t resumes) {
    EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
    ContinueAt("p0", "d1", 6, {11, 12, 13});
    ExpectTheAnswer(resumes);
    stream_ = {};
  };
  for (int i = 0; i < 3; ++i) {
    Submit(Ask());
    EXPECT_THAT(workers_.Open(), ElementsAre("reserve d0"));
    FailHandOff();
    answer_at_d1(1);
    Submit(Ask());
    answer_at_d1(0);
    for (Duration left = Cluster::kAvoided; left > Duration{}; left -= seconds(1)) {
      Pass(seconds(1));
      for (const char* name : {"p0", "d0", "d1"}) Beat(name);
    }
  }
}

TEST_F(UnreachedTest, TheRequestWaitsForRoomAtTheOtherDecodeWorker) {
  Join("d1", kDecodeRole);
  Submit(Ask());
  FailHandOff();
  RefuseReservation(ResourceExhausted("full"));
  Beat("d0");
  EXPECT_THAT(workers_.Open(), IsEmpty());
  Beat("d1");
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  ContinueAt("p0", "d1", 6, {11, 12, 13});
  ExpectTheAnswer(1);
}

TEST_F(UnreachedTest, AUnifiedWorkerIsAnotherPlace) {
  Join("u0", kUnifiedRole);
  cluster_.Charge({"u0", 1}, {.sequences = 50});
  Submit(Ask(v1::ROUTE_AUTO));
  FailHandOff();
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0"));
  Say("generate u0", {11, 12, 13});
  Finish("generate u0", kLength);
  cluster_.Discharge({"u0", 1}, {.sequences = 50});
  ExpectTheAnswer(1);
}

TEST_F(UnreachedTest, AnUnreachedWorkerIsAskedAgainOnceTheOtherIsGone) {
  Join("d1", kDecodeRole);
  Submit(Ask());
  FailHandOff();
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  RefuseReservation(Unavailable("Connection refused"), kNetwork);
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d0")) << "it has reported";
  ContinueAt("p0", "d0", 6, {11, 12, 13});
  ExpectTheAnswer(2);
}

TEST_F(UnreachedTest, UnreachedWorkersAreAskedAgainAfterTheirNextHeartbeat) {
  Join("d1", kDecodeRole);
  Submit(Ask());
  FailHandOff();
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  FailHandOff();
  ASSERT_THAT(workers_.Open(), testing::SizeIs(1)) << "p0 as well";
  const std::string decode = workers_.Open()[0].substr(std::string("reserve ").size());
  ContinueAt("p0", decode, 6, {11, 12, 13});
  ExpectTheAnswer(2);
}

TEST_F(UnreachedTest, APrefillWorkerThatReachesNobodyIsLeftForAnother) {
  for (const char* name : {"d1", "d2"}) Join(name, kDecodeRole);
  Submit(Ask());
  FailHandOff();
  Join("p1", kPrefillRole);
  FailHandOff();
  ASSERT_THAT(workers_.Open(), testing::SizeIs(1));
  Reserved(6);
  EXPECT_NE(workers_.Find("prefill p1"), nullptr) << "p0 failed with two of them";
}

}  // namespace
}  // namespace tandem::unreached_test
