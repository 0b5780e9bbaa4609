// Workers whose heartbeats arrive, but that do not answer the router.

#include "tests/support/resume_fixture.h"

namespace tandem::pings_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PingsTest : public ResumeFixture {
 protected:
  // Time goes by until the next pings; all workers but `unheard` report.
  void Turn(const std::string& unheard = "") {
    BeatAllBut(unheard);
    Pass(cluster_.options().lease / 3);
  }
  // The same for a router that stood still meanwhile, for longer than a lease.
  void LateTurn() {
    clock_.Advance(cluster_.options().lease * 2);
    BeatAllBut("");
  }
  bool Usable(const std::string& name) {
    const auto view = cluster_.View();
    for (const WorkerView& worker : view->workers) {
      if (worker.id.name == name) return worker.usable();
    }
    return false;
  }
  std::string NotReady(const std::string& name) {
    const v1::GetStatusResponse status = router_.Status();
    for (const v1::WorkerStatus& worker : status.workers()) {
      if (worker.name() == name) return worker.load().not_ready();
    }
    return "not there";
  }

 private:
  void BeatAllBut(const std::string& unheard) {
    const auto view = cluster_.View();
    for (const WorkerView& worker : view->workers) {
      if (worker.id.name != unheard) Beat(worker.id.name);
    }
  }
};

TEST_F(PingsTest, ASilentlyCutConnectionIsNoticedAndTheWorkerBecomesUsableAgain) {
  Join("d1", kDecodeRole);
  SubmitAndHandOver();
  Say("decode d0", {11});
  workers_.silent.insert("d0");
  Turn();  // what is sent now is not answered
  Turn();
  EXPECT_THAT(workers_.Open(), ElementsAre("decode d0")) << "one may be late";
  EXPECT_EQ(NotReady("d0"), "");
  Turn();
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  EXPECT_EQ(NotReady("d0"), "does not answer the router at d0:1");
  EXPECT_THAT(workers_.disconnected, ElementsAre("d0"));
  ContinueAt("p0", "d1", 6, {12, 13});
  ExpectTheAnswer(1);
  EXPECT_EQ(Causes(), "connection 1");
  Turn();
  EXPECT_FALSE(Usable("d0")) << "heartbeats do not make up for it";
  EXPECT_THAT(workers_.disconnected, ElementsAre("d0")) << "once";
  workers_.silent.clear();
  Turn();  // sends what is answered
  Turn();
  EXPECT_TRUE(Usable("d0"));
  EXPECT_EQ(NotReady("d0"), "");
}

TEST_F(PingsTest, AWorkerThatMissesEverySecondPingIsNotLost) {
  SubmitAndHandOver();
  for (int i = 0; i < 4; ++i) {
    workers_.silent.insert("d0");
    Turn();
    workers_.silent.clear();
    Turn();
  }
  EXPECT_THAT(workers_.Open(), ElementsAre("decode d0"));
  EXPECT_THAT(workers_.disconnected, IsEmpty());
}

TEST_F(PingsTest, AStallOfTheRouterCountsAgainstNoWorker) {
  SubmitAndHandOver();
  workers_.silent.insert("d0");
  Turn();
  for (int i = 0; i < 4; ++i) LateTurn();
  EXPECT_THAT(workers_.Open(), ElementsAre("decode d0"));
  Turn();
  EXPECT_TRUE(Usable("d0"));
  Turn();
  EXPECT_FALSE(Usable("d0"));
}

TEST_F(PingsTest, AWorkerWhoseHeartbeatsStopAsWellIsLostByItsLease) {
  Join("d1", kDecodeRole);
  SubmitAndHandOver();
  workers_.silent.insert("d0");
  for (int i = 0; i < 4; ++i) Turn("d0");
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  EXPECT_EQ(Causes(), "lease 1");
  EXPECT_THAT(workers_.disconnected, IsEmpty());
}

TEST_F(PingsTest, ANewWorkerThatNeverAnsweredIsNotUsed) {
  workers_.silent.insert("u0");
  Join("u0", kUnifiedRole);
  EXPECT_TRUE(Usable("u0")) << "until it is known better";
  for (int i = 0; i < 3; ++i) Turn();
  EXPECT_FALSE(Usable("u0"));
  Submit(Ask(v1::ROUTE_UNIFIED));
  EXPECT_THAT(workers_.Open(), IsEmpty()) << "it waits, because a worker was lost recently";
  workers_.silent.clear();
  Turn();
  Turn();
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0")) << "the waiting request learns of it";
  Say("generate u0", {10, 11, 12, 13});
  Finish("generate u0", kLength);
  ExpectTheAnswer(0);
}

TEST_F(PingsTest, EachWorkerHasOnePingInFlight) {
  const auto under_way = [this] {
    std::vector<std::string> names;
    for (const auto& ping : workers_.pings) {
      if (ping->open) names.push_back(ping->name);
    }
    return names;
  };
  workers_.silent = {"p0", "d0", "u0"};
  Join("u0", kUnifiedRole);
  for (int i = 0; i < 5; ++i) Turn();
  EXPECT_THAT(under_way(), ElementsAre("d0", "p0", "u0"));
  Leave("u0");
  Turn();
  EXPECT_THAT(under_way(), ElementsAre("d0", "p0", "u0")) << "it may still have streams";
  Leave("u0");
  Turn();
  EXPECT_THAT(under_way(), ElementsAre("d0", "p0"));
}

// Its gRPC threads answer, and its heartbeats continue; its engine hangs.
TEST_F(PingsTest, AWorkerThatAnswersThatItDoesNotServeLosesItsRequestsToOthers) {
  Join("d1", kDecodeRole);
  SubmitAndHandOver();
  Say("decode d0", {11});
  workers_.not_serving.insert("d0");
  for (int i = 0; i < 3; ++i) Turn();
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  EXPECT_FALSE(Usable("d0"));
  workers_.not_serving.clear();
  for (int i = 0; i < 2; ++i) Turn();
  EXPECT_TRUE(Usable("d0"));
}

// It refuses what is new, which is no reason to take from it what it still ends.
TEST_F(PingsTest, ALeavingWorkerNeedNotServeToKeepItsRequests) {
  SubmitAndHandOver();
  Say("decode d0", {11});
  Leave("d0");
  workers_.not_serving.insert("d0");
  for (int i = 0; i < 5; ++i) {
    Beat("d0");
    Beat("p0");
    Pass(cluster_.options().lease / 3);
  }
  EXPECT_THAT(workers_.Open(), ElementsAre("decode d0"));
}

}  // namespace
}  // namespace tandem::pings_test
