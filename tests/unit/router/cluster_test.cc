#include "router/cluster/cluster.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"

namespace tandem {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class ClusterTest : public testing::Test {
 protected:
  v1::RegisterRequest Worker(const std::string& name, v1::WorkerRole role) {
    v1::RegisterRequest request;
    request.set_name(name);
    request.set_incarnation(10);
    request.set_role(role);
    request.set_address("127.0.0.1:1");
    request.set_model("sample");
    request.set_model_fingerprint(1);
    v1::KvLayout& layout = *request.mutable_layout();
    layout.set_num_layers(4);
    layout.set_num_kv_heads(2);
    layout.set_head_dim(64);
    layout.set_block_tokens(16);
    layout.set_dtype("bf16");
    request.set_device("cpu");
    request.set_data_address("tcp:127.0.0.1:2");
    request.set_wire_version(2);
    request.set_max_context_tokens(100);
    return request;
  }
  // Until a name may change hands.
  void LetFallSilent() { clock_.Advance(2 * cluster_.options().heartbeat + seconds(1)); }
  absl::Status Beat(const std::string& name, uint64_t incarnation = 10, bool leaving = false) {
    v1::HeartbeatRequest request;
    request.set_leaving(leaving);
    request.set_name(name);
    request.set_incarnation(incarnation);
    request.mutable_load()->set_running(3);
    return cluster_.Heartbeat(request);
  }
  void ExpectDisagree(const v1::RegisterRequest& request, std::vector<std::string> said) {
    const absl::Status status = cluster_.Register(request);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    for (const std::string& part : said) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    }
  }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (const WorkerView& worker : cluster_.View()->workers) names.push_back(worker.id.name);
    return names;
  }

  std::vector<std::string> PeersOf(const std::string& prefill) {
    std::vector<std::string> names;
    const auto view = cluster_.View();
    for (const WorkerView& worker : view->workers) {
      if (worker.id.name != prefill) continue;
      for (const v1::KvPeer& peer : view->KvPeersOf(worker)) names.push_back(peer.name());
    }
    return names;
  }

  FakeClock clock_;
  Cluster cluster_{{.model = "sample", .lease = seconds(5), .heartbeat = seconds(1)}, clock_};
};

TEST_F(ClusterTest, ARouteIsThereWithItsRoles) {
  EXPECT_TRUE(cluster_.View()->Routes().empty());
  ASSERT_TRUE(cluster_.Register(Worker("p", v1::WORKER_ROLE_PREFILL)).ok());
  EXPECT_TRUE(cluster_.View()->Routes().empty());
  ASSERT_TRUE(cluster_.Register(Worker("d", v1::WORKER_ROLE_DECODE)).ok());
  EXPECT_THAT(cluster_.View()->Routes(), ElementsAre(v1::ROUTE_DISAGGREGATED));
  ASSERT_TRUE(cluster_.Register(Worker("a", v1::WORKER_ROLE_UNIFIED)).ok());
  EXPECT_THAT(cluster_.View()->Routes(), ElementsAre(v1::ROUTE_UNIFIED, v1::ROUTE_DISAGGREGATED));
  EXPECT_THAT(Names(), ElementsAre("a", "d", "p"));
  EXPECT_EQ(cluster_.View()->MaxContextTokens(v1::ROUTE_AUTO), 100);
}

TEST_F(ClusterTest, SnapshotsNeverChange) {
  const auto before = cluster_.View();
  ASSERT_TRUE(cluster_.Register(Worker("u", v1::WORKER_ROLE_UNIFIED)).ok());
  EXPECT_TRUE(before->workers.empty());
  EXPECT_EQ(cluster_.View()->workers.size(), 1u);
}

// Routes are chosen by sums of these.
TEST_F(ClusterTest, ALoadThatCannotBeIsRefused) {
  v1::RegisterRequest worker = Worker("u", v1::WORKER_ROLE_UNIFIED);
  worker.mutable_load()->set_free_blocks(-1);
  EXPECT_EQ(cluster_.Register(worker).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Names().empty());
  worker.mutable_load()->set_free_blocks(1'000'000'000);
  worker.mutable_load()->mutable_kv()->set_idle_blocks(1'000'000'000);
  ASSERT_EQ(cluster_.Register(worker), absl::OkStatus());
  EXPECT_EQ(cluster_.View()->workers.front().AvailableBlocks(), 2'000'000'000);
  v1::HeartbeatRequest beat;
  beat.set_name("u");
  beat.set_incarnation(10);
  beat.mutable_load()->set_running(2'000'000'000);
  const absl::Status refused = cluster_.Heartbeat(beat);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("load.running=2000000000"));
  beat.mutable_load()->set_running(2);
  beat.mutable_load()->set_waiting_prompt_tokens(-5);
  EXPECT_EQ(cluster_.Heartbeat(beat).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ClusterTest, LeaseLapsesWithoutHeartbeats) {
  ASSERT_TRUE(cluster_.Register(Worker("u", v1::WORKER_ROLE_UNIFIED)).ok());
  clock_.Advance(seconds(4));
  ASSERT_TRUE(Beat("u").ok());
  EXPECT_EQ(cluster_.NextExpiry(), clock_.Now() + seconds(5));
  clock_.Advance(seconds(4));
  EXPECT_TRUE(cluster_.Expire().empty());
  clock_.Advance(seconds(1));
  EXPECT_THAT(cluster_.Expire(), ElementsAre(WorkerId{"u", 10}));
  EXPECT_TRUE(Names().empty());
  EXPECT_TRUE(absl::IsNotFound(Beat("u")));
  EXPECT_EQ(cluster_.NextExpiry(), kNoDeadline);
}

TEST_F(ClusterTest, ARoutersOwnStandstillIsNotTheWorkers) {
  ASSERT_TRUE(cluster_.Register(Worker("u", v1::WORKER_ROLE_UNIFIED)).ok());
  clock_.Advance(seconds(2));
  ASSERT_TRUE(cluster_.Register(Worker("v", v1::WORKER_ROLE_UNIFIED)).ok());
  clock_.Advance(seconds(8));
  cluster_.Postpone(seconds(8));
  EXPECT_THAT(cluster_.Expire(), IsEmpty());
  EXPECT_EQ(cluster_.View()->workers[0].last_heard, clock_.Now() - seconds(2));
  EXPECT_EQ(cluster_.View()->workers[1].last_heard, clock_.Now());
  cluster_.Postpone(seconds(1));  // nobody was heard of in the future
  EXPECT_EQ(cluster_.View()->workers[1].last_heard, clock_.Now());
  clock_.Advance(seconds(4));
  EXPECT_THAT(cluster_.Expire(), ElementsAre(WorkerId{"u", 10}));
}

TEST_F(ClusterTest, SuspectedUntilHeardOfAgain) {
  ASSERT_TRUE(cluster_.Register(Worker("u", v1::WORKER_ROLE_UNIFIED)).ok());
  cluster_.Suspect({"u", 9});  // an earlier life
  EXPECT_TRUE(cluster_.View()->HasUsable(v1::WORKER_ROLE_UNIFIED));
  cluster_.Suspect({"u", 10});
  EXPECT_FALSE(cluster_.View()->HasUsable(v1::WORKER_ROLE_UNIFIED));
  ASSERT_TRUE(Beat("u").ok());
  EXPECT_TRUE(cluster_.View()->HasUsable(v1::WORKER_ROLE_UNIFIED));
}

TEST_F(ClusterTest, ANameChangesHandsOnceItsHolderIsSilentAndOnlyToAYoungerProcess) {
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
  cluster_.Deregister("u", 10);  // a late goodbye of the old one
  EXPECT_TRUE(cluster_.View()->HasUsable(v1::WORKER_ROLE_UNIFIED));
}

// Anyone can claim to have started last.
TEST_F(ClusterTest, AWorkerThatSendsHeartbeatsKeepsItsNameWhateverIncarnationAnotherClaims) {
  v1::RegisterRequest worker = Worker("u", v1::WORKER_ROLE_UNIFIED);
  ASSERT_TRUE(cluster_.Register(worker).ok());
  v1::RegisterRequest stranger = worker;
  stranger.set_incarnation(std::numeric_limits<uint64_t>::max());
  for (int i = 0; i < 10; ++i) {
    ExpectDisagree(stranger, {"the name u belongs to a process that was heard of 0 ms ago"});
    clock_.Advance(seconds(1));
    ASSERT_TRUE(Beat("u").ok());
  }
  EXPECT_THAT(cluster_.TakeReplaced(), IsEmpty());
  cluster_.Suspect({"u", 10});  // a call failed to reach it: it was killed, perhaps
  EXPECT_TRUE(cluster_.Register(stranger).ok());
}

// Its lease is another's now and will not lapse.
TEST_F(ClusterTest, ALifeThatWasReplacedIsToldOfOnce) {
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

// A stranger who knows a worker's incarnation can speak in its name.
TEST_F(ClusterTest, RefusalsTellNeitherFingerprintNorIncarnationOfOthers) {
  v1::RegisterRequest worker = Worker("u", v1::WORKER_ROLE_UNIFIED);
  worker.set_model_fingerprint(0xABCDEF);
  worker.set_incarnation(1795420144998968055);
  worker.set_pid(5933);
  ASSERT_TRUE(cluster_.Register(worker).ok());
  v1::RegisterRequest other = Worker("v", v1::WORKER_ROLE_UNIFIED);
  const auto tells_nothing = [](const absl::Status& status) {
    EXPECT_FALSE(status.ok());
    for (const char* secret : {"abcdef", "1795420144998968055", "5933"}) {
      EXPECT_THAT(std::string(status.message()), Not(HasSubstr(secret)));
    }
  };
  const absl::Status other_weights = cluster_.Register(other);
  tells_nothing(other_weights);
  EXPECT_THAT(other_weights.ToString(), HasSubstr("abcdef")) << "the log tells the operator";
  other = worker;
  other.set_incarnation(7);
  tells_nothing(cluster_.Register(other));
  LetFallSilent();
  tells_nothing(cluster_.Register(other));
  tells_nothing(Beat("u", 7));
}

TEST_F(ClusterTest, TextThatCouldForgeALogLineIsRefused) {
  const auto expect_refused = [this](const v1::RegisterRequest& request, const char* field) {
    const absl::Status status = cluster_.Register(request);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(field));
  };
  for (const std::string& name :
       {std::string("u\n[router] request id=fake"), std::string("a b"), std::string(129, 'u')}) {
    expect_refused(Worker(name, v1::WORKER_ROLE_UNIFIED), "name ");
  }
  v1::RegisterRequest worker = Worker("u", v1::WORKER_ROLE_UNIFIED);
  worker.set_address("127.0.0.1:1\n");
  expect_refused(worker, "address ");
  worker = Worker("u", v1::WORKER_ROLE_UNIFIED);
  worker.set_address(std::string(257, '1'));
  expect_refused(worker, "address has 257 bytes");
  worker = Worker("u", v1::WORKER_ROLE_UNIFIED);
  worker.set_model("sample\n");
  expect_refused(worker, "model ");
}

TEST_F(ClusterTest, ALoadIsBounded) {
  v1::RegisterRequest worker = Worker("u", v1::WORKER_ROLE_UNIFIED);
  for (int i = 0; i < 1025; ++i) worker.mutable_load()->add_links();
  absl::Status status = cluster_.Register(worker);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("load.links=1025"));
  worker.clear_load();
  worker.mutable_load()->set_not_ready(std::string(300 << 10, 'x'));
  status = cluster_.Register(worker);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("load has "));
}

TEST_F(ClusterTest, WorkersBeyondTheBoundAreRefusedUntilOthersHaveGone) {
  Cluster cluster(
      {.model = "sample", .lease = seconds(5), .heartbeat = seconds(1), .max_workers = 2}, clock_);
  ASSERT_TRUE(cluster.Register(Worker("a", v1::WORKER_ROLE_UNIFIED)).ok());
  ASSERT_TRUE(cluster.Register(Worker("b", v1::WORKER_ROLE_UNIFIED)).ok());
  const absl::Status status = cluster.Register(Worker("c", v1::WORKER_ROLE_UNIFIED));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--max-workers"));
  EXPECT_TRUE(cluster.Register(Worker("b", v1::WORKER_ROLE_UNIFIED)).ok()) << "it is known";
  cluster.Deregister("a", 10);
  cluster.Deregister("a", 10);
  EXPECT_TRUE(cluster.Register(Worker("c", v1::WORKER_ROLE_UNIFIED)).ok());
}

// Deregister is a call that anyone can make.
TEST_F(ClusterTest, AWorkerThatIsDeregisteredAndNotLeavingComesBack) {
  ASSERT_TRUE(cluster_.Register(Worker("u", v1::WORKER_ROLE_UNIFIED)).ok());
  cluster_.Deregister("u", 10);
  ASSERT_TRUE(Beat("u").ok());
  EXPECT_FALSE(cluster_.View()->HasUsable(v1::WORKER_ROLE_UNIFIED))
      << "this heartbeat may have been on its way";
  clock_.Advance(seconds(1));
  ASSERT_TRUE(Beat("u").ok());
  EXPECT_TRUE(cluster_.View()->HasUsable(v1::WORKER_ROLE_UNIFIED));
}

TEST_F(ClusterTest, TheContextIsThatOfTheBestUsableWorkersOfTheRoute) {
  v1::RegisterRequest tiny = Worker("t", v1::WORKER_ROLE_UNIFIED);
  tiny.set_max_context_tokens(2);
  v1::RegisterRequest decode = Worker("d", v1::WORKER_ROLE_DECODE);
  decode.set_max_context_tokens(50);
  for (const v1::RegisterRequest& worker :
       {tiny, decode, Worker("p", v1::WORKER_ROLE_PREFILL), Worker("u", v1::WORKER_ROLE_UNIFIED)}) {
    ASSERT_TRUE(cluster_.Register(worker).ok());
  }
  EXPECT_EQ(cluster_.View()->MaxContextTokens(v1::ROUTE_AUTO), 100);
  EXPECT_EQ(cluster_.View()->MaxContextTokens(v1::ROUTE_UNIFIED), 100);
  EXPECT_EQ(cluster_.View()->MaxContextTokens(v1::ROUTE_DISAGGREGATED), 50);
  cluster_.Suspect({"u", 10});
  EXPECT_EQ(cluster_.View()->MaxContextTokens(v1::ROUTE_UNIFIED), 2);
  EXPECT_EQ(cluster_.View()->MaxContextTokens(v1::ROUTE_AUTO), 50);
  cluster_.Suspect({"p", 10});
  EXPECT_EQ(cluster_.View()->MaxContextTokens(v1::ROUTE_DISAGGREGATED), 0);
}

TEST_F(ClusterTest, AWorkerThatLeavesGetsNothingAndKeepsItsLeaseUntilItIsGone) {
  ASSERT_TRUE(cluster_.Register(Worker("u", v1::WORKER_ROLE_UNIFIED)).ok());
  cluster_.Charge({"u", 10}, {.sequences = 2});
  cluster_.Deregister("u", 10);
  EXPECT_FALSE(cluster_.View()->HasUsable(v1::WORKER_ROLE_UNIFIED));
  EXPECT_TRUE(cluster_.View()->workers[0].leaving);
  clock_.Advance(seconds(4));
  ASSERT_TRUE(Beat("u", 10, true).ok());
  EXPECT_FALSE(cluster_.View()->HasUsable(v1::WORKER_ROLE_UNIFIED));
  clock_.Advance(seconds(4));
  EXPECT_TRUE(cluster_.Expire().empty());
  cluster_.Deregister("u", 10);
  EXPECT_TRUE(Names().empty());
}

TEST_F(ClusterTest, AWorkerThatLeavesKeepsItsLeaseBesideTheOneThatTakesItsName) {
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
  // Of two it may be the younger that leaves first, or is lost.
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

TEST_F(ClusterTest, AWorkerThatIsNotReadyGetsNothingUntilItIs) {
  ASSERT_TRUE(cluster_.Register(Worker("u", v1::WORKER_ROLE_UNIFIED)).ok());
  v1::HeartbeatRequest stuck;
  stuck.set_name("u");
  stuck.set_incarnation(10);
  stuck.mutable_load()->set_not_ready("no step for 4 s");
  ASSERT_TRUE(cluster_.Heartbeat(stuck).ok());
  EXPECT_FALSE(cluster_.View()->HasUsable(v1::WORKER_ROLE_UNIFIED));
  ASSERT_TRUE(Beat("u").ok());
  EXPECT_TRUE(cluster_.View()->HasUsable(v1::WORKER_ROLE_UNIFIED));
}

TEST_F(ClusterTest, AListenerHearsOfWorkersAndNotOfCharges) {
  int news = 0;
  cluster_.SetListener([&news] { ++news; });
  ASSERT_TRUE(cluster_.Register(Worker("u", v1::WORKER_ROLE_UNIFIED)).ok());
  EXPECT_EQ(news, 1);
  ASSERT_TRUE(Beat("u").ok());
  EXPECT_EQ(news, 2);
  cluster_.Charge({"u", 10}, {.sequences = 2});
  cluster_.Deregister("nobody", 10);
  EXPECT_EQ(news, 2);
  cluster_.Deregister("u", 10);
  EXPECT_EQ(news, 3);
}

TEST_F(ClusterTest, PeersMustAgree) {
  ASSERT_TRUE(cluster_.Register(Worker("p", v1::WORKER_ROLE_PREFILL)).ok());
  v1::RegisterRequest other = Worker("d", v1::WORKER_ROLE_DECODE);
  other.set_model("llama");
  EXPECT_TRUE(absl::IsNotFound(cluster_.Register(other)));
  other = Worker("d", v1::WORKER_ROLE_DECODE);
  other.set_model_fingerprint(3);
  ExpectDisagree(other, {"0000000000000003"});
  other = Worker("u", v1::WORKER_ROLE_UNIFIED);
  other.set_model_fingerprint(3);
  ExpectDisagree(other, {"0000000000000003"});
  other = Worker("p", v1::WORKER_ROLE_PREFILL);  // alone it may change its weights
  other.set_model_fingerprint(3);
  other.set_incarnation(11);
  LetFallSilent();
  EXPECT_TRUE(cluster_.Register(other).ok());
}

TEST_F(ClusterTest, AWorkerThatTurnsOutToHaveLoadedOtherWeightsIsDropped) {
  const auto hash = [](uint64_t value) {
    v1::WorkerLoad load;
    load.set_weights_hash(value);
    return load;
  };
  v1::RegisterRequest whole = Worker("whole", v1::WORKER_ROLE_UNIFIED);
  *whole.mutable_load() = hash(7);
  ASSERT_TRUE(cluster_.Register(whole).ok());
  v1::RegisterRequest damaged = Worker("damaged", v1::WORKER_ROLE_UNIFIED);
  ASSERT_TRUE(cluster_.Register(damaged).ok()) << "it has not loaded them yet";
  v1::HeartbeatRequest beat;
  beat.set_name("damaged");
  beat.set_incarnation(damaged.incarnation());
  EXPECT_TRUE(cluster_.Heartbeat(beat).ok());
  *beat.mutable_load() = hash(8);
  const absl::Status refused = cluster_.Heartbeat(beat);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_EQ(cluster_.View()->workers.size(), 1u);
  const std::vector<WorkerId> lost = cluster_.TakeReplaced();
  ASSERT_EQ(lost.size(), 1u) << "its requests must go on elsewhere";
  EXPECT_EQ(lost[0].name, "damaged");
  *damaged.mutable_load() = hash(8);
  ExpectDisagree(damaged, {"the weights that damaged loaded differ from those of whole"});
  *damaged.mutable_load() = hash(7);
  EXPECT_TRUE(cluster_.Register(damaged).ok());
}

TEST_F(ClusterTest, KvThatCannotBeHandedOverIsRefusedAtTheDoor) {
  ASSERT_TRUE(cluster_.Register(Worker("p", v1::WORKER_ROLE_PREFILL)).ok());
  v1::RegisterRequest other = Worker("d", v1::WORKER_ROLE_DECODE);
  other.set_wire_version(3);
  ExpectDisagree(other, {"wire version 2 of p", "3 of d"});
  other = Worker("d", v1::WORKER_ROLE_DECODE);
  other.mutable_layout()->set_dtype("f16");
  ExpectDisagree(other, {"KV layout of p", "bf16", "of d", "f16"});
  other = Worker("d", v1::WORKER_ROLE_DECODE);
  other.mutable_layout()->set_num_kv_heads(8);
  ExpectDisagree(other, {"num_kv_heads=2 cannot be kept with num_kv_heads=8",
                         "of p (4 layers, 2 KV heads of 64, 16 tokens per block, bf16)"});
  // Those who never meet may frame and lay out KV as they like.
  other = Worker("u", v1::WORKER_ROLE_UNIFIED);
  other.set_wire_version(3);
  other.mutable_layout()->set_block_tokens(64);
  EXPECT_TRUE(cluster_.Register(other).ok());
}

// By its route and when it is resumed a request may come to any of them.
TEST_F(ClusterTest, WorkersThatWouldSayOtherTokensAreRefusedAtTheDoor) {
  ASSERT_TRUE(cluster_.Register(Worker("p", v1::WORKER_ROLE_PREFILL)).ok());
  v1::RegisterRequest other = Worker("u", v1::WORKER_ROLE_UNIFIED);
  other.mutable_layout()->set_dtype("f8e4m3");
  ExpectDisagree(other, {"KV type f8e4m3 of unified worker u", "bf16 of prefill worker p"});
  other = Worker("p2", v1::WORKER_ROLE_PREFILL);
  other.mutable_layout()->set_dtype("f16");
  ExpectDisagree(other, {"KV type f16 of prefill worker p2", "bf16 of prefill worker p"});
  v1::RegisterRequest wide = Worker("d", v1::WORKER_ROLE_DECODE);
  wide.mutable_layout()->set_dtype("f32");
  ASSERT_TRUE(cluster_.Register(wide).ok()) << "what is widened loses nothing";
  ExpectDisagree(Worker("d2", v1::WORKER_ROLE_DECODE),
                 {"KV type bf16 of decode worker d2", "f32 of decode worker d"});
  // A unified worker would have to be like both.
  for (const char* dtype : {"bf16", "f32"}) {
    other = Worker("u", v1::WORKER_ROLE_UNIFIED);
    other.mutable_layout()->set_dtype(dtype);
    ExpectDisagree(other, {"of unified worker u"});
  }
}

TEST_F(ClusterTest, OtherWeightsMayComeOnceTheOldOnesLeave) {
  ASSERT_TRUE(cluster_.Register(Worker("p", v1::WORKER_ROLE_PREFILL)).ok());
  ASSERT_TRUE(cluster_.Register(Worker("d", v1::WORKER_ROLE_DECODE)).ok());
  v1::RegisterRequest p2 = Worker("p2", v1::WORKER_ROLE_PREFILL);
  p2.set_model_fingerprint(3);
  p2.mutable_layout()->set_dtype("f16");
  p2.set_wire_version(3);
  v1::RegisterRequest d2 = Worker("d2", v1::WORKER_ROLE_DECODE);
  d2.set_model_fingerprint(3);
  d2.mutable_layout()->set_dtype("f16");
  d2.set_wire_version(3);
  ExpectDisagree(p2, {"0000000000000003 of p2", "that of d", "others are leaving"});
  cluster_.Deregister("d", 10);
  ExpectDisagree(p2, {"that of p"});
  EXPECT_EQ(cluster_.LatestDeparture(), clock_.Now());
  cluster_.Deregister("p", 10);
  ASSERT_TRUE(cluster_.Register(p2).ok());
  ASSERT_TRUE(cluster_.Register(d2).ok());
  EXPECT_THAT(Names(), ElementsAre("d", "d2", "p", "p2"));
  // Each prefill worker sends to its own kind.
  EXPECT_THAT(PeersOf("p"), ElementsAre("d"));
  EXPECT_THAT(PeersOf("p2"), ElementsAre("d2"));
  EXPECT_THAT(cluster_.View()->Routes(), ElementsAre(v1::ROUTE_DISAGGREGATED));
}

// Wherever the memory of the receiver is.
TEST_F(ClusterTest, KvThatCanBeConvertedIsHandedOver) {
  for (const char* device : {"cpu", "cuda:0"}) {
    SCOPED_TRACE(device);
    v1::RegisterRequest decode = Worker("d", v1::WORKER_ROLE_DECODE);
    decode.set_device(device);
    decode.mutable_layout()->set_block_tokens(64);
    decode.mutable_layout()->set_dtype("f32");
    ASSERT_TRUE(cluster_.Register(decode).ok());
    EXPECT_TRUE(cluster_.Register(Worker("p", v1::WORKER_ROLE_PREFILL)).ok());
    // Not the other way round: the direction counts.
    v1::RegisterRequest narrow = Worker("d", v1::WORKER_ROLE_DECODE);
    narrow.set_incarnation(11);
    LetFallSilent();
    narrow.set_device(device);
    narrow.mutable_layout()->set_dtype("f8e4m3");
    ExpectDisagree(narrow, {"dtype=bf16 cannot be kept with dtype=f8e4m3"});
    cluster_.Deregister("p", 10);
    cluster_.Deregister("d", 10);
  }
}

TEST_F(ClusterTest, DecodeWorkersAreThePeersForKv) {
  ASSERT_TRUE(cluster_.Register(Worker("d", v1::WORKER_ROLE_DECODE)).ok());
  ASSERT_TRUE(cluster_.Register(Worker("p", v1::WORKER_ROLE_PREFILL)).ok());
  ASSERT_TRUE(cluster_.Register(Worker("u", v1::WORKER_ROLE_UNIFIED)).ok());
  const auto peers = cluster_.View()->KvPeersOf(cluster_.View()->workers[1]);
  ASSERT_EQ(peers.size(), 1u);
  EXPECT_EQ(peers[0].name(), "d");
  EXPECT_EQ(peers[0].epoch(), 10u);
  EXPECT_EQ(peers[0].data_address(), "tcp:127.0.0.1:2");
}

TEST_F(ClusterTest, WorkersThatMoveKvSayHow) {
  v1::RegisterRequest worker = Worker("d", v1::WORKER_ROLE_DECODE);
  worker.clear_data_address();
  EXPECT_TRUE(absl::IsInvalidArgument(cluster_.Register(worker)));
  for (const v1::WorkerRole role :
       {v1::WORKER_ROLE_PREFILL, v1::WORKER_ROLE_DECODE, v1::WORKER_ROLE_UNIFIED}) {
    worker = Worker("p", role);
    worker.clear_layout();
    EXPECT_TRUE(absl::IsInvalidArgument(cluster_.Register(worker)));
  }
  worker = Worker("p", v1::WORKER_ROLE_PREFILL);
  worker.clear_wire_version();
  EXPECT_TRUE(absl::IsInvalidArgument(cluster_.Register(worker)));
}

TEST_F(ClusterTest, IncompleteRegistrationsAreRefused) {
  v1::RegisterRequest worker = Worker("", v1::WORKER_ROLE_UNIFIED);
  EXPECT_TRUE(absl::IsInvalidArgument(cluster_.Register(worker)));
  EXPECT_TRUE(absl::IsInvalidArgument(cluster_.Register(Worker("x", v1::WORKER_ROLE_UNSPECIFIED))));
}

TEST_F(ClusterTest, LoadIsTheLargerOfReportedAndCharged) {
  ASSERT_TRUE(cluster_.Register(Worker("u", v1::WORKER_ROLE_UNIFIED)).ok());
  ASSERT_TRUE(Beat("u").ok());  // 3 running
  cluster_.Charge({"u", 10}, {.sequences = 1, .prompt_tokens = 50});
  EXPECT_EQ(cluster_.View()->workers[0].Sequences(), 3);
  EXPECT_EQ(cluster_.View()->workers[0].PendingPromptTokens(), 50);
  cluster_.Charge({"u", 10}, {.sequences = 4});
  EXPECT_EQ(cluster_.View()->workers[0].Sequences(), 5);
  cluster_.Discharge({"u", 10}, {.sequences = 5, .prompt_tokens = 50});
  EXPECT_EQ(cluster_.View()->workers[0].PendingPromptTokens(), 0);
}

}  // namespace
}  // namespace tandem
