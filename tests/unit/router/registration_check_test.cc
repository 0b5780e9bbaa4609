// Registrations and loads that a router must not keep.

#include "router/cluster/registration_check.h"

#include "tests/support/cluster_fixture.h"

namespace tandem::registration_check_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class RegistrationCheckTest : public ClusterFixture {};

// Policies add these numbers up.
TEST_F(RegistrationCheckTest, ALoadThatIsOutOfRangeIsRefused) {
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

// A client tells made-up tokens from answers by the model's name, so neither kind of worker may
// serve under a name of the other.
TEST_F(RegistrationCheckTest, SimulatedWorkersAndNamesOfSimulatedModelsGoTogether) {
  v1::RegisterRequest worker = Worker("u", v1::WORKER_ROLE_UNIFIED);
  worker.set_simulated(true);
  EXPECT_EQ(cluster_.Register(worker).code(), absl::StatusCode::kInvalidArgument);
  worker.set_model("simulated/gpu");
  Cluster simulated({.model = "simulated/gpu"}, clock_);
  EXPECT_EQ(simulated.Register(worker), absl::OkStatus());
  worker.set_simulated(false);
  worker.set_name("v");
  const absl::Status refused = simulated.Register(worker);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("for simulated devices"));
}

// A process that knows a worker's incarnation can send calls in its name.
TEST_F(RegistrationCheckTest, RefusalsContainNeitherFingerprintNorIncarnationOfOthers) {
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
  EXPECT_THAT(other_weights.ToString(), HasSubstr("abcdef")) << "the log shows it to the operator";
  other = worker;
  other.set_incarnation(7);
  tells_nothing(cluster_.Register(other));
  LetFallSilent();
  tells_nothing(cluster_.Register(other));
  tells_nothing(Beat("u", 7));
}

TEST_F(RegistrationCheckTest, TextThatCouldForgeALogLineIsRefused) {
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
  const std::string forged = "x\n[router] request id=fake";
  worker = Worker("u", v1::WORKER_ROLE_UNIFIED);
  worker.set_device(forged);
  expect_refused(worker, "device ");
  worker = Worker("d", v1::WORKER_ROLE_DECODE);
  worker.set_data_address(forged);
  expect_refused(worker, "data_address ");
  worker.set_data_address(std::string(1 << 16, '1'));
  expect_refused(worker, "data_address has 65536 bytes");
  worker = Worker("d", v1::WORKER_ROLE_DECODE);
  worker.mutable_layout()->set_dtype(forged);
  expect_refused(worker, "layout.dtype ");
}

TEST_F(RegistrationCheckTest, ALoadIsBounded) {
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

TEST_F(RegistrationCheckTest, WorkersThatMoveKvMustRegisterHow) {
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

TEST_F(RegistrationCheckTest, IncompleteRegistrationsAreRefused) {
  v1::RegisterRequest worker = Worker("", v1::WORKER_ROLE_UNIFIED);
  EXPECT_TRUE(absl::IsInvalidArgument(cluster_.Register(worker)));
  EXPECT_TRUE(absl::IsInvalidArgument(cluster_.Register(Worker("x", v1::WORKER_ROLE_UNSPECIFIED))));
}

}  // namespace
}  // namespace tandem::registration_check_test
