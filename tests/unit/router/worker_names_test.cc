// A name belongs to one process at a time.

#include <limits>

#include "router/cluster/cluster.h"
#include "tests/support/cluster_fixture.h"

namespace tandem::worker_names_test {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class WorkerNamesTest : public ClusterFixture {};

TEST_F(WorkerNamesTest, ANameChangesHandsOnceItsHolderIsSilentAndOnlyToAYoungerProcess) {
  v1::RegisterRequest worker = Worker("u", v1::WORKER_ROLE_UNIFIED);
  ASSERT_TRUE(cluster_.Register(worker).ok());
  cluster_.Charge({"u", 10}, {.sequences = 2});
  LetFallSilent();
  worker.set_incarnation(11);
  ASSERT_TRUE(cluster_.Register(worker).ok());
  EXPECT_EQ(cluster_.View()->workers[0].charged.sequences, 0);
  EXPECT_EQ(cluster_.LatestDeparture(), clock_.Now());
  EXPECT_TRUE(absl::IsNotFound(Beat("u", 10)));
  LetFallSilent();
  worker.set_incarnation(10);
  ExpectDisagree(worker, {"the name u belongs to a process that started later"});
  cluster_.Deregister("u", 10);  // the old process deregisters late
  EXPECT_TRUE(cluster_.View()->HasUsable(v1::WORKER_ROLE_UNIFIED));
}

// Anyone can claim to have started last.
TEST_F(WorkerNamesTest, AWorkerThatSendsHeartbeatsKeepsItsNameWhateverIncarnationAnotherClaims) {
  v1::RegisterRequest worker = Worker("u", v1::WORKER_ROLE_UNIFIED);
  ASSERT_TRUE(cluster_.Register(worker).ok());
  v1::RegisterRequest stranger = worker;
  stranger.set_incarnation(std::numeric_limits<uint64_t>::max());
  for (int i = 0; i < 10; ++i) {
    ExpectDisagree(stranger, {"the name u belongs to a process whose heartbeat came 0 ms ago"});
    clock_.Advance(seconds(1));
    ASSERT_TRUE(Beat("u").ok());
  }
  EXPECT_THAT(cluster_.TakeReplaced(), IsEmpty());
  cluster_.Suspect({"u", 10});  // a call failed to reach it: it was killed, perhaps
  EXPECT_TRUE(cluster_.Register(stranger).ok());
}

// Its lease is another's now and will not lapse.
TEST_F(WorkerNamesTest, AReplacedIncarnationIsReportedOnce) {
  v1::RegisterRequest worker = Worker("u", v1::WORKER_ROLE_UNIFIED);
  ASSERT_TRUE(cluster_.Register(worker).ok());
  ASSERT_TRUE(cluster_.Register(worker).ok());  // the same life once more
  EXPECT_THAT(cluster_.TakeReplaced(), IsEmpty());
  LetFallSilent();
  worker.set_incarnation(11);
  ASSERT_TRUE(cluster_.Register(worker).ok());
  worker.set_incarnation(10);
  ASSERT_FALSE(cluster_.Register(worker).ok());
  EXPECT_THAT(cluster_.TakeReplaced(), ElementsAre(WorkerId{"u", 10}));
  EXPECT_THAT(cluster_.TakeReplaced(), IsEmpty());
}

TEST_F(WorkerNamesTest, ALeavingWorkerKeepsItsLeaseBesideTheOneThatTakesItsName) {
  v1::RegisterRequest worker = Worker("d", v1::WORKER_ROLE_DECODE);
  ASSERT_TRUE(cluster_.Register(Worker("p", v1::WORKER_ROLE_PREFILL)).ok());
  ASSERT_TRUE(cluster_.Register(worker).ok());
  cluster_.Charge({"d", 10}, {.sequences = 2});
  cluster_.Deregister("d", 10);
  for (const uint64_t younger : {11, 12}) {
    LetFallSilent();
    ASSERT_TRUE(Beat("p").ok());
    ASSERT_TRUE(Beat("d", 10, true).ok());
    worker.set_incarnation(younger);
    ASSERT_TRUE(cluster_.Register(worker).ok());
  }
  EXPECT_THAT(cluster_.TakeReplaced(), ElementsAre(WorkerId{"d", 11})) << "it was not leaving";
  EXPECT_THAT(Names(), ElementsAre("d", "d", "p"));
  const WorkerView older = cluster_.View()->workers[0];
  EXPECT_EQ(older.id.incarnation, 10u);
  EXPECT_EQ(older.charged.sequences, 2);
  EXPECT_TRUE(older.leaving && older.name_taken);
  EXPECT_TRUE(cluster_.View()->workers[1].usable());
  EXPECT_THAT(PeersOf("p"), ElementsAre("d")) << "only where new KV may go";
  clock_.Advance(seconds(4));
  ASSERT_TRUE(Beat("d", 10, true).ok());
  ASSERT_TRUE(Beat("d", 12).ok());
  clock_.Advance(seconds(4));
  EXPECT_THAT(cluster_.Expire(), ElementsAre(WorkerId{"p", 10}));
  cluster_.Deregister("d", 10);
  EXPECT_THAT(Names(), ElementsAre("d"));
  EXPECT_EQ(cluster_.View()->workers[0].id.incarnation, 12u);
  // The younger of two may be the first to leave or to be lost.
  worker.set_incarnation(13);
  cluster_.Deregister("d", 12);
  ASSERT_TRUE(cluster_.Register(worker).ok());
  clock_.Advance(seconds(4));
  ASSERT_TRUE(Beat("d", 12, true).ok());
  clock_.Advance(seconds(4));
  EXPECT_THAT(cluster_.Expire(), ElementsAre(WorkerId{"d", 13}));
  ASSERT_TRUE(Beat("d", 12, true).ok());
  EXPECT_THAT(cluster_.TakeReplaced(), IsEmpty());
}

}  // namespace
}  // namespace tandem::worker_names_test
