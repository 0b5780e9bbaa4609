// Which workers may serve beside which.

#include "router/cluster/agreement.h"

#include "tests/support/cluster_fixture.h"

namespace tandem::agreement_test {
namespace {

using ::testing::ElementsAre;

class AgreementTest : public ClusterFixture {};

TEST_F(AgreementTest, WorkersMustHaveTheSameModel) {
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

TEST_F(AgreementTest, AWorkerThatTurnsOutToHaveLoadedOtherWeightsIsDropped) {
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
  ASSERT_EQ(lost.size(), 1u) << "its requests must continue elsewhere";
  EXPECT_EQ(lost[0].name, "damaged");
  *damaged.mutable_load() = hash(8);
  ExpectDisagree(damaged, {"the weights that damaged loaded differ from those of whole"});
  *damaged.mutable_load() = hash(7);
  EXPECT_TRUE(cluster_.Register(damaged).ok());
}

TEST_F(AgreementTest, WorkersThatCannotHandOverKvAreRefused) {
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
  // Workers that never exchange KV may use other frames and layouts.
  other = Worker("u", v1::WORKER_ROLE_UNIFIED);
  other.set_wire_version(3);
  other.mutable_layout()->set_block_tokens(64);
  EXPECT_TRUE(cluster_.Register(other).ok());
}

// A request may be sent to any of them, by its route or when it is resumed.
TEST_F(AgreementTest, WorkersThatWouldGenerateOtherTokensAreRefused) {
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

TEST_F(AgreementTest, WorkersWithOtherWeightsMayJoinOnceTheOldOnesAreLeaving) {
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

// The kind of memory that the receiver has does not matter.
TEST_F(AgreementTest, KvThatCanBeConvertedIsHandedOver) {
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

}  // namespace
}  // namespace tandem::agreement_test
