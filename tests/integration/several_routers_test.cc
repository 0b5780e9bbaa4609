// Two routers that share their workers: one of them is killed, added, or both are gone for a while.

#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/test_cluster.h"
#include "tests/support/tree.h"

namespace tandem::several_routers_test {
namespace {

using ::testing::Each;

constexpr char kPrompt[] = "It was a fine morning, and the ladies";
constexpr int32_t kLong = 1000;
constexpr int32_t kStreams = 3;  // at each router
constexpr Client::Timeout kLimit = std::chrono::minutes(1);

// A router on a port of its own, besides the one of a TestCluster.
class SecondRouter {
 public:
  // what: of the model that is served.
  explicit SecondRouter(const std::string& what = "--model=" + SampleModel()) : what_(what) {
    Start();
  }
  ~SecondRouter() { Kill(); }

  void Start() {
    auto process =
        ChildProcess::Start({"router", fmt::format("--port={}", port_), "--heartbeat-ms=100",
                             "--lease-ms=2000", what_, "--log-level=error"},
                            DaemonBinary());
    ASSERT_TRUE(process.ok()) << process.status();
    process_ = std::make_unique<ChildProcess>(*std::move(process));
    EXPECT_FALSE(process_->TakeReadyLine().empty()) << "the second router did not start";
  }
  void Kill() {
    if (process_ == nullptr) return;
    process_->Signal(SIGKILL);
    waitpid(process_->pid(), nullptr, 0);
    process_.reset();
  }
  std::string address() const { return fmt::format("127.0.0.1:{}", port_); }

 private:
  const std::string what_;
  const uint16_t port_ = FreePort();
  std::unique_ptr<ChildProcess> process_;
};

TestClusterOptions SharedWorkers(TestClusterOptions options, const SecondRouter& second) {
  options.worker_flags.push_back("--router=" + second.address());
  return options;
}

v1::GenerateRequest LongRequest() { return TextRequest(kPrompt, v1::ROUTE_DISAGGREGATED, kLong); }

// Without a tokenizer.
v1::GenerateRequest IdRequest(int32_t max_tokens) {
  v1::GenerateRequest request = TextRequest("", v1::ROUTE_UNIFIED, max_tokens);
  request.mutable_token_ids()->add_ids(5);
  return request;
}

// Requests that run beside what happens; each has had its first token once Begin returns.
class Streams {
 public:
  void Begin(Client& client, int32_t count, const v1::GenerateRequest& request) {
    const int32_t before = begun_;
    for (int32_t i = 0; i < count; ++i) {
      outcomes_.push_back(std::async(std::launch::async, [this, &client, request] {
        Outcome outcome;
        bool first = true;
        outcome.status = client.Generate(request, kLimit, [&](const v1::GenerateResponse& event) {
          outcome.generation.Add(event);
          if (first) ++begun_;
          first = false;
          return !stopped_;
        });
        if (first) ++begun_;  // it ended without one, which its outcome shows
        return outcome;
      }));
    }
    while (begun_ < before + count) std::this_thread::yield();
  }

  // Those that run end with CANCELLED at their next token.
  void Stop() { stopped_ = true; }

  std::vector<Outcome> End() {
    std::vector<Outcome> all;
    for (std::future<Outcome>& outcome : outcomes_) all.push_back(outcome.get());
    outcomes_.clear();
    return all;
  }

 private:
  std::atomic<int32_t> begun_ = 0;
  std::atomic<bool> stopped_ = false;
  std::vector<std::future<Outcome>> outcomes_;  // last: their threads use the rest
};

std::vector<int32_t> TokensOf(const Outcome& outcome) {
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  if (outcome.generation.choices.empty()) return {};
  return outcome.generation.choices[0].token_ids;
}

class SeveralRoutersTest : public testing::Test {
 protected:
  // Until both have registered with the router that was started again.
  void AwaitWorkers() {
    cluster_.WaitFor("the workers are there", [](const v1::GetStatusResponse& status) {
      return status.workers_size() == 2;
    });
  }
  void ExpectAll(const std::vector<Outcome>& outcomes, const std::vector<int32_t>& tokens) {
    for (const Outcome& outcome : outcomes) EXPECT_EQ(TokensOf(outcome), tokens);
  }

  SecondRouter second_;
  TestCluster cluster_{SharedWorkers({.unified = 0}, second_)};
  Client survivor_{second_.address()};
};

TEST_F(SeveralRoutersTest, DeathOfOneEndsOnlyItsOwnStreams) {
  const v1::GenerateRequest request = LongRequest();
  const std::vector<int32_t> right = TokensOf(Ask(survivor_, request));
  ASSERT_EQ(right.size(), size_t{kLong});
  Streams lost;
  Streams kept;
  kept.Begin(survivor_, kStreams, LongRequest());
  lost.Begin(cluster_.client(), kStreams, LongRequest());
  cluster_.Kill("router");
  for (const Outcome& outcome : lost.End()) {
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kUnavailable) << outcome.status;
  }
  // What its clients ask again is answered at once, beside the streams that go on.
  EXPECT_EQ(TokensOf(Ask(survivor_, request)), right);
  ExpectAll(kept.End(), right);

  cluster_.Start("router");  // at the same address, where the workers look for it
  AwaitWorkers();
  cluster_.WaitUntilIdle();
  EXPECT_EQ(TokensOf(Ask(cluster_.client(), request)), right);
}

TEST_F(SeveralRoutersTest, ARouterThatComesDisturbsNoStreamsOfTheOther) {
  cluster_.Kill("router");
  Streams streams;
  streams.Begin(survivor_, kStreams, LongRequest());
  cluster_.Start("router");
  AwaitWorkers();
  const std::vector<int32_t> right = TokensOf(Ask(cluster_.client(), LongRequest()));
  ASSERT_EQ(right.size(), size_t{kLong});
  ExpectAll(streams.End(), right);
  cluster_.WaitUntilIdle();
}

TEST_F(SeveralRoutersTest, WorkersKeepTheirCachesWhileAllRoutersAreGone) {
  v1::GenerateRequest request = TextRequest("", v1::ROUTE_DISAGGREGATED, 20);
  for (int32_t i = 0; i < 200; ++i) request.mutable_token_ids()->add_ids(300 + i * 7 % 1000);
  const Outcome before = Ask(cluster_.client(), request);
  EXPECT_EQ(before.generation.summary.usage().cached_tokens(), 0);
  Streams lost;
  lost.Begin(cluster_.client(), kStreams, LongRequest());
  lost.Begin(survivor_, kStreams, LongRequest());
  cluster_.Kill("router");
  second_.Kill();
  for (const Outcome& outcome : lost.End()) {
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kUnavailable) << outcome.status;
  }
  second_.Start();
  cluster_.Start("router");
  AwaitWorkers();
  cluster_.WaitUntilIdle();
  const Outcome after = Ask(cluster_.client(), request);
  EXPECT_EQ(TokensOf(after), TokensOf(before));
  EXPECT_GE(after.generation.summary.usage().cached_tokens(), 192) << "twelve blocks";
}

// Neither router knows the other's requests, but both know what the workers report.
TEST(SeveralRoutersLoadTest, ARouterAvoidsTheWorkerThatTheOtherKeepsBusy) {
  // At the pace of a GPU, so that the request takes seconds unless it is stopped.
  const std::string device = TreePath("models/simulated/qwen3-8b-h200.json");
  SecondRouter second("--simulated=" + device);
  TestCluster cluster(SharedWorkers({.model = "",
                                     .prefill = 0,
                                     .decode = 0,
                                     .unified = 2,
                                     .router_flags = {"--simulated=" + device},
                                     .worker_flags = {"--device=simulated:" + device}},
                                    second));
  Client other(second.address());
  Streams busy;
  busy.Begin(other, 1, IdRequest(20'000));
  std::string busy_worker;
  double age = 0;
  int reports = 0;  // that show the request
  cluster.WaitFor("reports of the other router's request", [&](const auto& status) {
    for (const v1::WorkerStatus& worker : status.workers()) {
      if (worker.load().running() == 0) continue;
      busy_worker = worker.name();
      if (worker.heartbeat_age_ms() < age) ++reports;
      age = worker.heartbeat_age_ms();
    }
    return reports >= 2;
  });
  std::vector<std::string> workers;
  for (int i = 0; i < 8; ++i) {
    const Outcome outcome = Ask(cluster.client(), IdRequest(2));
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    workers.push_back(outcome.generation.choices.at(0).finish.prefill_worker());
  }
  EXPECT_THAT(workers, Each(testing::Ne(busy_worker)));
  busy.Stop();
  EXPECT_EQ(busy.End().at(0).status.code(), absl::StatusCode::kCancelled) << "it ran all the time";
}

}  // namespace
}  // namespace tandem::several_routers_test
